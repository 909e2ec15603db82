package metacontroller

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
)

// ErrBadRequest: the body is not a hook request that this package knows.
var ErrBadRequest = errors.New("not a hook v2 request")

// ErrMissingKind: a child kind that this binary needs is not in the request. It
// unwraps to ErrBadRequest as well.
var ErrMissingKind = fmt.Errorf("%w: a child kind is missing", ErrBadRequest)

// DecodeRequest reads a sync or finalize request. wantChildren are the kinds,
// such as "Pod.v1", that must be present: a missing one means that the
// CompositeController and this binary do not fit, not that there are no
// children. All its errors unwrap to ErrBadRequest, but for those of reading
// itself.
func DecodeRequest(r io.Reader, wantChildren ...string) (*Request, error) {
	var req Request
	if err := decodeStrict(r, req.read); err != nil {
		return nil, err
	}
	if req.Parent == nil {
		return nil, errNoParent()
	}
	for _, kind := range wantChildren {
		if req.Children[kind] == nil {
			return nil, fmt.Errorf("children has no %q: the CompositeController must list that child resource: %w", kind, ErrMissingKind)
		}
	}
	return &req, nil
}

func (r *Request) read(s *scanner, field string) (err error) {
	switch field {
	case "controller":
		r.Controller, err = s.value()
	case "parent":
		r.Parent, err = readObject(s, field)
	case "children":
		r.Children, err = readObjects(s, field)
	case "related":
		r.Related, err = readObjects(s, field)
	case "finalizing":
		err = readInto(s, &r.Finalizing)
	default:
		err = unknownField(field)
	}
	return err
}

// DecodeCustomizeRequest reads a customize request, with errors as
// DecodeRequest.
func DecodeCustomizeRequest(r io.Reader) (*CustomizeRequest, error) {
	var req CustomizeRequest
	if err := decodeStrict(r, req.read); err != nil {
		return nil, err
	}
	if req.Parent == nil {
		return nil, errNoParent()
	}
	return &req, nil
}

func (r *CustomizeRequest) read(s *scanner, field string) (err error) {
	switch field {
	case "controller":
		r.Controller, err = s.value()
	case "parent":
		r.Parent, err = readObject(s, field)
	default:
		err = unknownField(field)
	}
	return err
}

func errNoParent() error { return fmt.Errorf("%w: %w", ErrBadRequest, notAnObject("parent")) }

func unknownField(name string) error { return fmt.Errorf("unknown field %q", name) }

func notAnObject(what string) error { return errors.New(what + " is missing or not an object") }

func readObject(s *scanner, field string) (json.RawMessage, error) {
	if !s.isObject() {
		return nil, notAnObject(field)
	}
	return s.value()
}

func readInto(s *scanner, v any) error {
	raw, err := s.value()
	if err != nil {
		return err
	}
	return json.Unmarshal(raw, v)
}

// usualBody is what most requests fit in: a parent, a few children and the
// CompositeController. Larger ones are read as well, by and by.
const usualBody = 32 << 10

// decodeStrict reads exactly one JSON object, with read called for each of its
// fields. Their names match by exact case; unknown and repeated ones are errors.
// Errors of the reader (a body over its cap, a broken connection) keep their
// identity.
func decodeStrict(r io.Reader, read func(s *scanner, field string) error) error {
	buf := bytes.NewBuffer(make([]byte, 0, usualBody))
	if _, err := buf.ReadFrom(r); err != nil {
		return fmt.Errorf("read request body: %w", err)
	}
	s := &scanner{text: buf.Bytes()}
	if s.space(); !s.isObject() {
		return fmt.Errorf("%w: the body is not a JSON object", ErrBadRequest)
	}
	err := s.object(func(field string) error { return read(s, field) })
	if err == nil {
		err = s.end()
	}
	if errors.Is(err, errSyntax) {
		err = syntaxError(s.text)
	}
	if err != nil {
		return fmt.Errorf("%w: %w", ErrBadRequest, err)
	}
	return nil
}

// syntaxError tells in encoding/json's words what is wrong with a text.
func syntaxError(text []byte) error {
	var anything json.RawMessage
	if err := json.Unmarshal(text, &anything); err != nil {
		return err
	}
	return errSyntax
}
