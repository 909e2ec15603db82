package api

import (
	"bytes"
	"encoding/json"
	"log/slog"
	"net/http"
)

// response is what a handler answers when all went well.
type response struct {
	status int
	header http.Header
	body   any // nil: no body
}

// handler does the work of one route. What it returns is encoded in one place.
type handler func(r *http.Request) (response, error)

// serve makes an http.Handler of h. Bodies are encoded before the first header
// is written, so that a failure there still becomes a proper error.
func (s *Server) serve(h handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		res, err := h(r)
		if err != nil {
			s.fail(w, r, err)
			return
		}
		body, err := encode(res.body)
		if err != nil {
			s.fail(w, r, err)
			return
		}
		// Answers hold credentials or change from one second to the next.
		w.Header().Set("Cache-Control", "no-store")
		for k, v := range res.header {
			w.Header()[k] = v
		}
		send(w, res.status, "application/json", body)
	})
}

// fail answers with the problem that err stands for.
func (s *Server) fail(w http.ResponseWriter, r *http.Request, err error) {
	p, header := problemFor(err, requestID(r.Context()))
	body, encodeErr := encode(p)
	if encodeErr != nil {
		s.log.Error("cannot encode a problem", "request", p.Instance, "err", encodeErr)
		http.Error(w, "internal", http.StatusInternalServerError)
		return
	}
	if p.Status >= http.StatusInternalServerError {
		s.log.Log(r.Context(), failureLevel(p.Status), "request failed", "request", p.Instance, "code", string(p.Error), "err", err)
	}
	w.Header().Set("Cache-Control", "no-store")
	for k, v := range header {
		w.Header()[k] = v
	}
	send(w, p.Status, "application/problem+json", body)
}

// failureLevel tells what somebody must look at from what passes by itself.
func failureLevel(status int) slog.Level {
	if status == http.StatusServiceUnavailable {
		return slog.LevelWarn
	}
	return slog.LevelError
}

func encode(body any) ([]byte, error) {
	if body == nil {
		return nil, nil
	}
	if raw, ok := body.(json.RawMessage); ok { // made by us, and large
		return raw, nil
	}
	var buf bytes.Buffer
	enc := json.NewEncoder(&buf)
	enc.SetEscapeHTML(false) // proxyURL must stay readable
	if err := enc.Encode(body); err != nil {
		return nil, err
	}
	return buf.Bytes(), nil
}

func send(w http.ResponseWriter, status int, contentType string, body []byte) {
	if body != nil {
		w.Header().Set("Content-Type", contentType)
		w.Header().Set("X-Content-Type-Options", "nosniff")
	}
	w.WriteHeader(status)
	_, _ = w.Write(body) // the client is gone if this fails
}
