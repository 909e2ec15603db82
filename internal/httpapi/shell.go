package httpapi

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"mime"
	"net/http"
	"runtime/debug"
	"strconv"
	"time"
)

// ErrMediaType is a request body of another media type than JSON. Its status is
// 415.
var ErrMediaType = errors.New("want a body with Content-Type: application/json")

// ErrPanic is a panic in a handler. Its status is 500, and the shell has logged
// the stack.
var ErrPanic = errors.New("panic in a handler")

// Response is a whole answer. The shell encodes Body before it writes the first
// header, so that a value that cannot be encoded still becomes a proper error.
type Response struct {
	// Status is the HTTP status code.
	Status int
	// ContentType of the body; empty means application/json.
	ContentType string
	// Header is added to the answer's header. It may be nil.
	Header http.Header
	// Body is sent as it is when it is a []byte or a json.RawMessage, and as JSON
	// otherwise. nil sends no body.
	Body any
}

// Text returns an answer in plain text.
func Text(status int, text string) Response {
	return Response{Status: status, ContentType: "text/plain; charset=utf-8", Body: []byte(text)}
}

// RetryAfter returns the header that asks the client to wait for d. It rounds up
// to whole seconds and is at least 1, so that a client that obeys is never early.
func RetryAfter(d time.Duration) http.Header {
	return http.Header{"Retry-After": {strconv.Itoa(WholeSeconds(d))}}
}

// WholeSeconds rounds d up to whole seconds, at least 1.
func WholeSeconds(d time.Duration) int {
	return int(max(1, (d+time.Second-1)/time.Second))
}

// Handler does the work of one route. Errors are turned into answers by the
// shell's Error.
type Handler func(r *http.Request) (Response, error)

// Shell is what every route of an HTTP server has in common: it bounds the body,
// recovers panics, encodes before the first header, and answers errors.
type Shell struct {
	// MaxBody is the largest request body in bytes. A larger one fails to read with
	// *http.MaxBytesError.
	MaxBody int64
	// Error returns the answer to an error of a handler, to an answer that cannot be
	// encoded, and to a panic (ErrPanic).
	Error func(r *http.Request, err error) Response
	// Answered, if set, receives the status of each answer once, after its encoding.
	Answered func(r *http.Request, status int, took time.Duration)
	// Log receives panics.
	Log *slog.Logger
}

// Serve returns the http.Handler of h.
func (s *Shell) Serve(h Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		start := time.Now()
		r.Body = http.MaxBytesReader(w, r.Body, s.MaxBody)
		res, body := s.answer(h, r)
		if s.Answered != nil {
			s.Answered(r, res.Status, time.Since(start))
		}
		res.write(w, body)
	})
}

// answer runs h and encodes what it returns. The second encoding cannot fail
// for a well-behaved Error; a plain 500 covers the rest.
func (s *Shell) answer(h Handler, r *http.Request) (Response, []byte) {
	res, err := s.call(h, r)
	if err != nil {
		res = s.Error(r, err)
	}
	body, err := Encode(res.Body)
	if err == nil {
		return res, body
	}
	res = s.Error(r, fmt.Errorf("encode the answer: %w", err))
	if body, err = Encode(res.Body); err != nil {
		s.Log.Error("the answer to an error cannot be encoded", "err", err)
		return Text(http.StatusInternalServerError, ""), []byte("internal error\n")
	}
	return res, body
}

// call runs h and turns a panic into ErrPanic. http.ErrAbortHandler passes: it
// asks the server to drop the connection.
func (s *Shell) call(h Handler, r *http.Request) (res Response, err error) {
	defer func() {
		v := recover()
		if v == nil {
			return
		}
		if cause, ok := v.(error); ok && errors.Is(cause, http.ErrAbortHandler) {
			panic(v)
		}
		s.Log.Error("handler panicked", "method", r.Method, "err", fmt.Sprint(v), "stack", string(debug.Stack()))
		err = fmt.Errorf("%w: %v", ErrPanic, v)
	}()
	return h(r)
}

func (res Response) write(w http.ResponseWriter, body []byte) {
	h := w.Header()
	for name, values := range res.Header {
		h[name] = values
	}
	if len(body) > 0 {
		h.Set("Content-Type", res.ContentType)
		if res.ContentType == "" {
			h.Set("Content-Type", "application/json")
		}
		h.Set("X-Content-Type-Options", "nosniff")
	}
	if res.Status != http.StatusNoContent && res.Status != http.StatusNotModified {
		h.Set("Content-Length", strconv.Itoa(len(body)))
	}
	w.WriteHeader(res.Status)
	_, _ = w.Write(body) // an error here means that the client is gone
}

// Encode returns body as it is when it is a []byte or a json.RawMessage, and as
// JSON otherwise. It leaves <, > and & as they are, so that URLs stay readable.
func Encode(body any) ([]byte, error) {
	switch b := body.(type) {
	case nil:
		return nil, nil
	case []byte:
		return b, nil
	case json.RawMessage:
		return b, nil
	}
	var buf bytes.Buffer
	enc := json.NewEncoder(&buf)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(body); err != nil {
		return nil, err
	}
	return buf.Bytes(), nil
}

// WantJSON returns ErrMediaType when the request's body is not JSON.
func WantJSON(r *http.Request) error {
	mediaType, _, err := mime.ParseMediaType(r.Header.Get("Content-Type"))
	if err != nil || mediaType != "application/json" {
		return ErrMediaType
	}
	return nil
}

// Rule maps an error class to the status of its response.
type Rule struct {
	// Is reports whether err belongs to the class.
	Is func(err error) bool
	// Status is the HTTP status code.
	Status int
	// Code is the machine-readable name of the class, where the API has one.
	Code string
}

// Class matches errors that wrap target.
func Class(target error) func(error) bool {
	return func(err error) bool { return errors.Is(err, target) }
}

// TooLarge matches a body over the limit.
func TooLarge(err error) bool {
	var e *http.MaxBytesError
	return errors.As(err, &e)
}

// Table maps error classes to statuses. The first rule that matches wins.
type Table []Rule

// Find returns the rule for err, or one for 500 without a code.
func (t Table) Find(err error) Rule {
	for _, rule := range t {
		if rule.Is(err) {
			return rule
		}
	}
	return Rule{Status: http.StatusInternalServerError}
}
