package metacontroller

import (
	"bytes"
	"errors"
	"fmt"
	"io"

	"github.com/go-json-experiment/json/jsontext"
)

// ErrBadRequest: the body is not a valid hook request of version v2.
var ErrBadRequest = errors.New("not a hook v2 request")

// ErrMissingKind: the request lacks a child kind that this binary requires. It
// unwraps to ErrBadRequest as well.
var ErrMissingKind = fmt.Errorf("%w: a child kind is missing", ErrBadRequest)

// Bounds of Request.Unknown: a request may carry any number of names.
const (
	maxUnknown     = 16
	maxUnknownName = 64 // bytes
)

// DecodeRequest decodes a sync or finalize request. wantChildren are required
// kinds, such as "Pod.v1": a missing kind means that the CompositeController
// and this binary do not match, not that there are no children. Every error
// unwraps to ErrBadRequest, except errors of r.
func DecodeRequest(r io.Reader, wantChildren ...string) (*Request, error) {
	var req Request
	unknown, err := decodeEnvelope(r, map[string]func(*decoder) error{
		"controller": func(d *decoder) (err error) { req.Controller, err = d.value(); return err },
		"parent":     func(d *decoder) (err error) { req.Parent, err = d.objectValue("parent"); return err },
		"children":   func(d *decoder) (err error) { req.Children, err = d.objects("children"); return err },
		"related":    func(d *decoder) (err error) { req.Related, err = d.objects("related"); return err },
		"finalizing": func(d *decoder) (err error) { req.Finalizing, err = d.boolean("finalizing"); return err },
	})
	if err != nil {
		return nil, err
	}
	if req.Parent == nil {
		return nil, fmt.Errorf("%w: %w", ErrBadRequest, notAnObject("parent"))
	}
	for _, kind := range wantChildren {
		if req.Children[kind] == nil {
			return nil, fmt.Errorf("children has no %q: the CompositeController must list that child resource: %w", kind, ErrMissingKind)
		}
	}
	req.Unknown = unknown
	return &req, nil
}

// DecodeCustomizeRequest decodes a customize request, with the errors of
// DecodeRequest.
func DecodeCustomizeRequest(r io.Reader) (*CustomizeRequest, error) {
	var req CustomizeRequest
	unknown, err := decodeEnvelope(r, map[string]func(*decoder) error{
		"controller": func(d *decoder) (err error) { req.Controller, err = d.value(); return err },
		"parent":     func(d *decoder) (err error) { req.Parent, err = d.objectValue("parent"); return err },
		"children": func(*decoder) error {
			return errors.New("children in a customize request; check the hook URLs in the CompositeController")
		},
	})
	if err != nil {
		return nil, err
	}
	if req.Parent == nil {
		return nil, fmt.Errorf("%w: %w", ErrBadRequest, notAnObject("parent"))
	}
	req.Unknown = unknown
	return &req, nil
}

// typicalBody holds most requests: a parent, a few children and the
// CompositeController. The buffer grows for larger ones.
const typicalBody = 32 << 10

// decodeEnvelope decodes exactly one JSON object and calls the field of the same
// name, by exact case, for each of its members. It returns the names of members
// without a field. A repeated name, at any depth of the body, is an error.
// Errors of r (a body over its limit, a broken connection) keep their identity.
func decodeEnvelope(r io.Reader, fields map[string]func(*decoder) error) (unknown []string, err error) {
	buf := bytes.NewBuffer(make([]byte, 0, typicalBody))
	if _, err := buf.ReadFrom(r); err != nil {
		return nil, fmt.Errorf("read request body: %w", err)
	}
	body := buf.Bytes()
	// encoding/json, which Metacontroller and the API server use, accepts
	// invalid UTF-8.
	d := &decoder{jsontext.NewDecoder(buf, jsontext.AllowInvalidUTF8(true)), body}
	if d.PeekKind() != '{' {
		return nil, fmt.Errorf("%w: the body is not a JSON object", ErrBadRequest)
	}
	_, err = d.members(func(name string) error {
		if field, found := fields[name]; found {
			return field(d)
		}
		if len(unknown) < maxUnknown {
			unknown = append(unknown, name[:min(len(name), maxUnknownName)])
		}
		return d.SkipValue()
	})
	if err == nil {
		err = d.end()
	}
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrBadRequest, err)
	}
	return unknown, nil
}
