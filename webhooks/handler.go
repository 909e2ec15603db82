package webhooks

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"path"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/internal/httpapi"
	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/metacontroller"
	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/webhooks/config"
	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/webhooks/proxy"
)

// maxBody bounds a request: a Proxy, its children and one Secret are far smaller.
const maxBody = 16 << 20

// notReadyRetry is the Retry-After of an answer while the hooks are not ready.
// Without that header, or with anything but a whole number of at least 1,
// Metacontroller retries thousands of times a second.
const notReadyRetry = 2 * time.Second

// Refusals of requests that reach no hook.
var (
	errNoRoute      = errors.New("no such path; the hooks are /hooks/customize, /hooks/sync and /hooks/finalize")
	errUnauthorized = errors.New("missing or wrong bearer token; the hooks' authorization in the CompositeController must hold a token of --token-file")
	errMethod       = errors.New("hooks are called by POST")
)

// statuses maps error classes to HTTP statuses.
var statuses = httpapi.Table{
	{Is: httpapi.TooLarge, Status: http.StatusRequestEntityTooLarge},
	{Is: httpapi.Class(errNoRoute), Status: http.StatusNotFound},
	{Is: httpapi.Class(errUnauthorized), Status: http.StatusUnauthorized},
	{Is: httpapi.Class(errMethod), Status: http.StatusMethodNotAllowed},
	{Is: httpapi.Class(httpapi.ErrMediaType), Status: http.StatusUnsupportedMediaType},
	{Is: httpapi.Class(ErrNotReady), Status: http.StatusTooManyRequests},
	{Is: httpapi.Class(metacontroller.ErrMissingKind), Status: http.StatusInternalServerError},
	{Is: httpapi.Class(metacontroller.ErrBadRequest), Status: http.StatusBadRequest},
}

// hookFunc turns a request body into the body of the answer.
type hookFunc func(ctx context.Context, body io.Reader) ([]byte, error)

// Handler serves the hooks under /hooks. With nil tokens it serves every caller.
func (h *Hooks) Handler(tokens *config.BearerTokens) http.Handler {
	routes := map[string]http.Handler{}
	for name, hook := range map[string]hookFunc{
		metacontroller.HookCustomize: h.customize,
		metacontroller.HookSync:      h.sync,
		metacontroller.HookFinalize:  h.finalize,
	} {
		routes["/hooks/"+name] = h.serve(name, hook, tokens)
	}
	notFound := h.shell().Serve(func(*http.Request) (httpapi.Response, error) { return httpapi.Response{}, errNoRoute })
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if route, found := routes[r.URL.Path]; found {
			route.ServeHTTP(w, r)
			return
		}
		notFound.ServeHTTP(w, r)
	})
}

func (h *Hooks) shell() *httpapi.Shell {
	return &httpapi.Shell{MaxBody: maxBody, Error: refusal, Log: h.opts.Log}
}

// serve serves one hook, with metrics.
func (h *Hooks) serve(name string, hook hookFunc, tokens *config.BearerTokens) http.Handler {
	answer := func(r *http.Request) (httpapi.Response, error) {
		if err := h.admit(r, tokens); err != nil {
			return httpapi.Response{}, err
		}
		body, err := hook(r.Context(), r.Body)
		if err != nil {
			h.opts.Log.Warn("hook request refused", "hook", name, "code", statuses.Find(err).Status, "err", proxy.Truncate(err.Error()))
			return httpapi.Response{}, fmt.Errorf("%s: %w", name, err)
		}
		return httpapi.Response{Status: http.StatusOK, Body: body}, nil
	}
	label := prometheus.Labels{"hook": name}
	return promhttp.InstrumentHandlerCounter(h.metrics.requests.MustCurryWith(label),
		promhttp.InstrumentHandlerDuration(h.metrics.duration.MustCurryWith(label), h.shell().Serve(answer)))
}

// admit returns why a request must not reach a hook.
func (h *Hooks) admit(r *http.Request, tokens *config.BearerTokens) error {
	switch {
	case tokens != nil && !tokens.Accepts(r):
		return errUnauthorized
	case r.Method != http.MethodPost:
		return errMethod
	}
	if err := httpapi.WantJSON(r); err != nil {
		return err
	}
	return h.Ready()
}

// refusal is the answer to an error. Its text becomes an Event on the Proxy, so it
// is short: errors may quote the request.
func refusal(r *http.Request, err error) httpapi.Response {
	text := proxy.Truncate(err.Error())
	if errors.Is(err, httpapi.ErrPanic) {
		text = path.Base(r.URL.Path) + ": a defect of webhooks; see its log"
	}
	res := httpapi.Text(statuses.Find(err).Status, text+"\n")
	switch res.Status {
	case http.StatusUnauthorized:
		res.Header = http.Header{"Www-Authenticate": {"Bearer"}}
	case http.StatusMethodNotAllowed:
		res.Header = http.Header{"Allow": {http.MethodPost}}
	case http.StatusTooManyRequests:
		res.Header = httpapi.RetryAfter(notReadyRetry)
	}
	return res
}
