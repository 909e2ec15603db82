package metacontroller

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"

	"github.com/go-json-experiment/json/jsontext"
)

// decoder reads a request in one pass. jsontext rather than sigs.k8s.io/json:
// that scans every value twice for each level that is left encoded, which alone
// exceeds what a hook call may cost (see BenchmarkSync of webhooks).
type decoder struct {
	*jsontext.Decoder
	body []byte // all of it; values are slices of it
}

// members calls visit with the name of each member of the object that comes
// next and returns the object's text. visit reads the member's value.
func (d *decoder) members(visit func(name string) error) (json.RawMessage, error) {
	if _, err := d.ReadToken(); err != nil { // the opening brace
		return nil, err
	}
	start := d.InputOffset() - 1
	for d.PeekKind() != '}' {
		name, err := d.ReadToken()
		if err != nil {
			return nil, err
		}
		if err := visit(name.String()); err != nil {
			return nil, err
		}
	}
	if _, err := d.ReadToken(); err != nil {
		return nil, err
	}
	return d.since(start), nil
}

// end returns an error if anything but white space is left.
func (d *decoder) end() error {
	switch _, err := d.ReadToken(); {
	case err == nil:
		return errors.New("data after the top-level value")
	case !errors.Is(err, io.EOF):
		return fmt.Errorf("after the top-level value: %w", err)
	}
	return nil
}

// since returns the text from start to the last token read. Its capacity is
// capped, so that appending to one value does not overwrite the next.
func (d *decoder) since(start int64) json.RawMessage {
	end := d.InputOffset()
	return d.body[start:end:end]
}

// value returns the next value, encoded.
func (d *decoder) value() (json.RawMessage, error) {
	v, err := d.ReadValue()
	if err != nil {
		return nil, err
	}
	return d.since(d.InputOffset() - int64(len(v))), nil
}

// objectValue returns the next value, encoded, which must be an object.
func (d *decoder) objectValue(field string) (json.RawMessage, error) {
	if d.PeekKind() != '{' {
		return nil, d.mismatch(notAnObject(field))
	}
	return d.value()
}

// mismatch returns the syntax error of the next value, if it has one, and
// otherwise err.
func (d *decoder) mismatch(err error) error {
	return errors.Join(d.SkipValue(), err)
}

// text returns the next value, which must be a string; null is "".
func (d *decoder) text(field string) (string, error) {
	if kind := d.PeekKind(); kind != '"' && kind != 'n' {
		return "", d.mismatch(errors.New(field + " is not a string"))
	}
	token, err := d.ReadToken()
	if err != nil || token.Kind() == 'n' {
		return "", err
	}
	return token.String(), nil
}

// boolean returns the next value, which must be a boolean; null is false.
func (d *decoder) boolean(field string) (bool, error) {
	if kind := d.PeekKind(); kind != 't' && kind != 'f' && kind != 'n' {
		return false, d.mismatch(errors.New(field + " is not a boolean"))
	}
	token, err := d.ReadToken()
	return err == nil && token.Kind() == 't', err
}

// objects reads the children or the related objects, which stay encoded. null
// is nil.
func (d *decoder) objects(field string) (Objects, error) {
	out := Objects{}
	ok, err := d.mapOrNull(field, func(kind string) (err error) {
		out[kind], err = d.kind(fmt.Sprintf("%s[%q]", field, kind))
		return err
	})
	if !ok {
		return nil, err
	}
	return out, err
}

func (d *decoder) kind(path string) (map[string]json.RawMessage, error) {
	out := map[string]json.RawMessage{}
	ok, err := d.mapOrNull(path, func(key string) (err error) {
		if out[key], err = d.keyed(key); err != nil {
			return fmt.Errorf("%s[%q]%w", path, key, err)
		}
		return nil
	})
	if !ok {
		return nil, err
	}
	return out, err
}

// mapOrNull calls visit for each member of the next value and reports whether
// it is an object. null is neither an object nor an error.
func (d *decoder) mapOrNull(path string, visit func(name string) error) (bool, error) {
	switch d.PeekKind() {
	case '{':
		_, err := d.members(visit)
		return true, err
	case 'n':
		return false, d.SkipValue()
	}
	return false, d.mismatch(notAnObject(path))
}

// keyed reads an object and compares its identity with its key. Hook v1 keys
// namespaced children by their bare name: a lookup by namespace/name would miss
// them and report a child as absent.
func (d *decoder) keyed(key string) (json.RawMessage, error) {
	if d.PeekKind() != '{' {
		return nil, d.mismatch(notAnObject(""))
	}
	namespace, name, raw, err := d.identity()
	if err != nil {
		return nil, fmt.Errorf(": %w", err)
	}
	if want := Key(namespace, name); key != want {
		return nil, fmt.Errorf(": contains %q: all three hooks of the CompositeController must have version: v2", want)
	}
	return raw, nil
}

// identity reads an object and returns its namespace, its name and its text.
func (d *decoder) identity() (namespace, name string, raw json.RawMessage, err error) {
	metadata := func(field string) (err error) {
		switch field {
		case "namespace":
			namespace, err = d.text("metadata.namespace")
		case "name":
			name, err = d.text("metadata.name")
		default:
			err = d.SkipValue()
		}
		return err
	}
	raw, err = d.members(func(field string) error {
		if field != "metadata" {
			return d.SkipValue()
		}
		if d.PeekKind() != '{' {
			return d.mismatch(notAnObject("metadata"))
		}
		_, err := d.members(metadata)
		return err
	})
	return namespace, name, raw, err
}

func notAnObject(what string) error { return errors.New(what + " is missing or not an object") }
