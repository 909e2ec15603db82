package webhooks

import (
	"context"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"runtime/debug"
	"strconv"
	"strings"

	"github.com/go-chi/chi/v5"

	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/metacontroller"
)

// maxBody bounds a request: a Proxy, its children and one Secret take far less.
const maxBody = 16 << 20

// retryAfterSeconds is when Metacontroller shall call again while the hooks are
// not ready. Without that header, or with anything but a whole number of at
// least 1, it calls back thousands of times a second.
const retryAfterSeconds = 2

// hookFunc turns a request body into the body of the answer.
type hookFunc func(ctx context.Context, body io.Reader) ([]byte, error)

// Handler serves the hooks under /hooks. tokens may be nil: then anybody may
// call.
func (h *Hooks) Handler(tokens *BearerTokens) http.Handler {
	r := chi.NewRouter()
	for name, hook := range map[string]hookFunc{
		metacontroller.HookCustomize: h.customize,
		metacontroller.HookSync:      h.sync,
		metacontroller.HookFinalize:  h.finalize,
	} {
		r.Handle("/hooks/"+name, h.serve(name, hook, tokens))
	}
	r.MethodNotAllowed(func(w http.ResponseWriter, _ *http.Request) { wrongMethod().write(w) })
	r.NotFound(func(w http.ResponseWriter, _ *http.Request) {
		refuse(http.StatusNotFound, "no such path; the hooks are /hooks/customize, /hooks/sync and /hooks/finalize").write(w)
	})
	return r
}

// reply is a whole answer, made before its first byte is sent.
type reply struct {
	code    int
	body    []byte
	headers map[string]string
}

func refuse(code int, format string, args ...any) reply {
	return reply{
		code:    code,
		body:    []byte(short(fmt.Sprintf(format, args...)) + "\n"),
		headers: map[string]string{"Content-Type": "text/plain; charset=utf-8", "X-Content-Type-Options": "nosniff"},
	}
}

func wrongMethod() reply {
	return refuse(http.StatusMethodNotAllowed, "hooks are called by POST").with("Allow", http.MethodPost)
}

// maxWords bounds what is said about a bad request, which may be quoted in it:
// refusals become Events on the Proxy.
const maxWords = 1000

func short(words string) string {
	if len(words) > maxWords {
		return strings.ToValidUTF8(words[:maxWords], "") + " ..."
	}
	return words
}

func (r reply) with(header, value string) reply {
	r.headers[header] = value
	return r
}

func (r reply) write(w http.ResponseWriter) {
	for name, value := range r.headers {
		w.Header().Set(name, value)
	}
	w.Header().Set("Content-Length", strconv.Itoa(len(r.body)))
	w.WriteHeader(r.code)
	_, _ = w.Write(r.body) // the caller is gone if this fails
}

func (h *Hooks) serve(name string, hook hookFunc, tokens *BearerTokens) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		start := h.opts.Clock.Now()
		rep := h.admit(r, tokens)
		if rep.code == 0 {
			rep = h.call(r.Context(), name, hook, http.MaxBytesReader(w, r.Body, maxBody))
		}
		rep.write(w)
		h.metrics.served(name, rep.code, h.opts.Clock.Since(start))
	}
}

// admit returns the refusal of a request that must not reach a hook, or a reply
// without a code.
func (h *Hooks) admit(r *http.Request, tokens *BearerTokens) reply {
	mediaType, _, err := mime.ParseMediaType(r.Header.Get("Content-Type"))
	switch {
	case tokens != nil && !tokens.Accepts(r):
		return refuse(http.StatusUnauthorized, "missing or wrong bearer token; the hooks' authorization in the CompositeController must hold a token of --token-file").
			with("WWW-Authenticate", "Bearer")
	case r.Method != http.MethodPost:
		return wrongMethod()
	case err != nil || mediaType != "application/json":
		return refuse(http.StatusUnsupportedMediaType, "hook requests have Content-Type: application/json")
	}
	if err := h.Ready(); err != nil {
		return refuse(http.StatusTooManyRequests, "not ready: %v", err).with("Retry-After", strconv.Itoa(retryAfterSeconds))
	}
	return reply{}
}

// call runs the hook and turns its error, or its panic, into a refusal.
func (h *Hooks) call(ctx context.Context, name string, hook hookFunc, body io.Reader) (rep reply) {
	defer func() {
		if p := recover(); p != nil {
			h.opts.Log.Error("hook panicked", "hook", name, "stack", string(debug.Stack()), "err", fmt.Sprint(p))
			rep = refuse(http.StatusInternalServerError, "%s: a bug in webhooks; its log tells more", name)
		}
	}()
	b, err := hook(ctx, body)
	if err != nil {
		code := statusOf(err)
		h.opts.Log.Warn("hook request refused", "hook", name, "code", code, "err", short(err.Error()))
		return refuse(code, "%s: %v", name, err)
	}
	return reply{code: http.StatusOK, body: b, headers: map[string]string{"Content-Type": "application/json"}}
}

// statusOf maps error classes to status codes.
func statusOf(err error) int {
	var tooLarge *http.MaxBytesError
	switch {
	case errors.As(err, &tooLarge):
		return http.StatusRequestEntityTooLarge
	case errors.Is(err, metacontroller.ErrMissingKind):
		return http.StatusInternalServerError
	case errors.Is(err, metacontroller.ErrBadRequest):
		return http.StatusBadRequest
	}
	return http.StatusInternalServerError
}
