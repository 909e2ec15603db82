package metacontroller

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"

	kjson "sigs.k8s.io/json"
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
	if err := decodeStrict(r, &req); err != nil {
		return nil, err
	}
	if err := isObject("parent", req.Parent); err != nil {
		return nil, err
	}
	for _, kind := range wantChildren {
		if req.Children[kind] == nil {
			return nil, fmt.Errorf("children has no %q: the CompositeController must list that child resource: %w", kind, ErrMissingKind)
		}
	}
	if err := req.Children.check("children"); err != nil {
		return nil, err
	}
	if err := req.Related.check("related"); err != nil {
		return nil, err
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

// isObject refuses what is not a JSON object. raw comes out of a decoder, so
// that it is valid JSON without white space around it.
func isObject(field string, raw json.RawMessage) error {
	if len(raw) == 0 || raw[0] != '{' {
		return fmt.Errorf("%s is missing or not an object: %w", field, ErrBadRequest)
	}
	return nil
}

// check refuses entries that are no objects, and keys that are not those of
// their objects: hook v1 keys a namespaced child by its bare name, where a
// look-up by namespace/name would find nothing and take a child for missing.
func (o Objects) check(field string) error {
	for kind, objects := range o {
		for key, raw := range objects {
			path := fmt.Sprintf("%s[%q][%q]", field, kind, key)
			if err := isObject(path, raw); err != nil {
				return err
			}
			want, err := objectKey(raw)
			if err != nil {
				return fmt.Errorf("%s: %w: %w", path, ErrBadRequest, err)
			}
			if key != want {
				return fmt.Errorf("%s holds %q: all three hooks of the CompositeController must say version: v2: %w", path, want, ErrBadRequest)
			}
		}
	}
	return nil
}

func objectKey(raw json.RawMessage) (string, error) {
	var obj struct {
		Metadata struct {
			Namespace string `json:"namespace"`
			Name      string `json:"name"`
		} `json:"metadata"`
	}
	if err := kjson.UnmarshalCaseSensitivePreserveInts(raw, &obj); err != nil {
		return "", err
	}
	return Key(obj.Metadata.Namespace, obj.Metadata.Name), nil
}

// Key is the key of an object within Objects: namespace/name, or the name alone
// for an object without namespace.
func Key(namespace, name string) string {
	if namespace == "" {
		return name
	}
	return namespace + "/" + name
}

// decodeStrict reads exactly one JSON value. Field names match by exact case;
// unknown and repeated ones are errors. Errors of the reader (a body over its
// cap, a broken connection) keep their identity.
func decodeStrict(r io.Reader, into any) error {
	body, err := io.ReadAll(r)
	if err != nil {
		return fmt.Errorf("read request body: %w", err)
	}
	if trimmed := bytes.TrimSpace(body); len(trimmed) == 0 || trimmed[0] != '{' {
		return fmt.Errorf("%w: the body is not a JSON object", ErrBadRequest)
	}
	strict, err := kjson.UnmarshalStrict(body, into)
	if err := errors.Join(append(strict, err)...); err != nil {
		return fmt.Errorf("%w: %w", ErrBadRequest, err)
	}
	return nil
}
