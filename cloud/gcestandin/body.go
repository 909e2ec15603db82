package gcestandin

import (
	"context"
	"encoding/json"
	"io"
	"net/http"
)

// maxBody of an insert: metadata may have half a megabyte, and JSON escapes.
const maxBody = 8 << 20

type bodyKey struct{}

// readBody reads the request's body before the lock is taken.
func readBody(r *http.Request) ([]byte, *apiError) {
	body, err := io.ReadAll(io.LimitReader(r.Body, maxBody+1))
	switch {
	case err != nil:
		return nil, badRequest("parseError", "The body cannot be read: %v", err)
	case len(body) > maxBody:
		return nil, &apiError{Status: http.StatusRequestEntityTooLarge, Reason: "uploadTooLarge", Message: "Request payload is too large."}
	}
	return body, nil
}

func withBody(r *http.Request, body []byte) *http.Request {
	return r.WithContext(context.WithValue(r.Context(), bodyKey{}, body))
}

func bodyOf(r *http.Request) []byte {
	body, _ := r.Context().Value(bodyKey{}).([]byte)
	return body
}

// peekName finds the name of the VM that an insert asks for, for faults that
// match names.
func peekName(body []byte) string {
	var resource struct {
		Name string `json:"name"`
	}
	_ = json.Unmarshal(body, &resource) // a broken body has no name; insert refuses it
	return resource.Name
}
