package metacontroller

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
)

// ErrBadRequest: the body is not a hook request that this package knows.
var ErrBadRequest = errors.New("not a hook v2 request")

// ErrBadResponse: the answer would make Metacontroller crash, fail, or delete
// children that nobody meant to delete.
var ErrBadResponse = errors.New("unsafe hook response")

// DecodeRequest reads a sync or finalize request. wantChildren are the kinds,
// such as "Pod.v1", that must be present: a missing one means that the
// CompositeController and this binary do not fit, not that there are no
// children. All its errors unwrap to ErrBadRequest, but for those of reading
// itself.
func DecodeRequest(r io.Reader, wantChildren ...string) (*Request, error) {
	var req Request
	if err := decodeStrict(r, &req); err != nil {
		return nil, err
	}
	if err := isObject("parent", req.Parent); err != nil {
		return nil, err
	}
	for _, kind := range wantChildren {
		if req.Children[kind] == nil {
			return nil, fmt.Errorf("children has no %q: the CompositeController must list that child resource: %w", kind, ErrBadRequest)
		}
	}
	return &req, nil
}

// DecodeCustomizeRequest reads a customize request, with errors as
// DecodeRequest.
func DecodeCustomizeRequest(r io.Reader) (*CustomizeRequest, error) {
	var req CustomizeRequest
	if err := decodeStrict(r, &req); err != nil {
		return nil, err
	}
	if err := isObject("parent", req.Parent); err != nil {
		return nil, err
	}
	return &req, nil
}

func isObject(field string, raw json.RawMessage) error {
	if len(raw) == 0 || raw[0] != '{' {
		return fmt.Errorf("%s is missing or not an object: %w", field, ErrBadRequest)
	}
	return nil
}

// decodeStrict reads exactly one JSON value without unknown fields. Errors of
// the reader (a body over its cap, a broken connection) keep their identity.
func decodeStrict(r io.Reader, into any) error {
	body, err := io.ReadAll(r)
	if err != nil {
		return fmt.Errorf("read request body: %w", err)
	}
	dec := json.NewDecoder(bytes.NewReader(body))
	dec.DisallowUnknownFields()
	if err := dec.Decode(into); err != nil {
		return fmt.Errorf("%w: %w", ErrBadRequest, err)
	}
	if _, err := dec.Token(); !errors.Is(err, io.EOF) {
		return fmt.Errorf("%w: data after the JSON object", ErrBadRequest)
	}
	return nil
}

// Encode returns the bytes of a sync or finalize answer, or an error that
// unwraps to ErrBadResponse when the answer is one that must never be sent.
func (r *Response) Encode() ([]byte, error) {
	if err := r.check(); err != nil {
		return nil, err
	}
	b, err := json.Marshal(r)
	if err != nil {
		return nil, fmt.Errorf("encode hook response: %w", err)
	}
	return b, nil
}

func (r *Response) check() error {
	switch {
	case r == nil:
		return fmt.Errorf("%w: nil response", ErrBadResponse)
	case r.Status == nil:
		return fmt.Errorf("%w: nil status", ErrBadResponse)
	case r.Children == nil:
		return fmt.Errorf("%w: nil children", ErrBadResponse)
	case r.ResyncAfterSeconds < 0 || math.IsNaN(r.ResyncAfterSeconds) || math.IsInf(r.ResyncAfterSeconds, 0):
		return fmt.Errorf("%w: resyncAfterSeconds %v", ErrBadResponse, r.ResyncAfterSeconds)
	}
	for i, child := range r.Children {
		if child == nil || child.GetAPIVersion() == "" || child.GetKind() == "" || child.GetName() == "" {
			return fmt.Errorf("%w: child %d is nil or lacks apiVersion, kind or name", ErrBadResponse, i)
		}
	}
	return nil
}

// Encode returns the bytes of a customize answer; an empty one is an empty
// list, never null.
func (r *CustomizeResponse) Encode() ([]byte, error) {
	if r == nil || r.RelatedResources == nil {
		return []byte(`{"relatedResources":[]}`), nil
	}
	b, err := json.Marshal(r)
	if err != nil {
		return nil, fmt.Errorf("encode customize response: %w", err)
	}
	return b, nil
}
