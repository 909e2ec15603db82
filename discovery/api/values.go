package api

import (
	"bytes"
	"encoding/json"
	"errors"
	"strconv"
	"strings"
)

// wholeNumber is a number of a request body, the zero value when it was left
// out or null. One that is too large for an int64 is cut, but keeps its text:
// it is out of range and not of the wrong type.
type wholeNumber struct {
	text  string
	value int64
}

func (n *wholeNumber) given() bool { return n.text != "" }

// UnmarshalJSON is for package json, which has checked the syntax.
func (n *wholeNumber) UnmarshalJSON(raw []byte) error {
	if isNull(raw) {
		return nil
	}
	value, err := strconv.ParseInt(string(raw), 10, 64)
	if err != nil && !errors.Is(err, strconv.ErrRange) {
		return &json.UnmarshalTypeError{Value: kindOf(raw)}
	}
	*n = wholeNumber{text: string(raw), value: value}
	return nil
}

// selector is an object whose values are strings, nil when it was left out or
// null. A name that comes twice asks for two things at once, and a null for
// nothing that could be told from an empty value: both are refused.
type selector map[string]string

// UnmarshalJSON is for package json, which has checked the syntax.
func (s *selector) UnmarshalJSON(raw []byte) error {
	if isNull(raw) {
		return nil
	}
	if raw[0] != '{' {
		return &json.UnmarshalTypeError{Value: kindOf(raw)}
	}
	dec := json.NewDecoder(bytes.NewReader(raw))
	if _, err := dec.Token(); err != nil {
		return err
	}
	*s = selector{}
	for dec.More() {
		if err := s.decodeEntry(dec); err != nil {
			return err
		}
	}
	return nil
}

func (s *selector) decodeEntry(dec *json.Decoder) error {
	tok, err := dec.Token()
	if err != nil {
		return err
	}
	name, _ := tok.(string) // between braces, only strings come first
	if _, twice := (*s)[name]; twice {
		return failf(codeInvalidRequest, "selector attribute %q comes twice", clip(name))
	}
	var value *string
	if err := dec.Decode(&value); err != nil {
		return err
	}
	if value == nil {
		return &json.UnmarshalTypeError{Value: "null"}
	}
	(*s)[name] = *value
	return nil
}

// names is a list of strings, nil when it was left out or null.
type names []string

// UnmarshalJSON is for package json, which has checked the syntax.
func (n *names) UnmarshalJSON(raw []byte) error {
	if isNull(raw) {
		return nil
	}
	if raw[0] != '[' {
		return &json.UnmarshalTypeError{Value: kindOf(raw)}
	}
	var list []*string
	if err := json.Unmarshal(raw, &list); err != nil {
		return err
	}
	for _, s := range list {
		if s == nil {
			return &json.UnmarshalTypeError{Value: "null"}
		}
		*n = append(*n, *s)
	}
	return nil
}

func isNull(raw []byte) bool { return string(raw) == "null" }

// kindOf names the kind of a JSON value as package json does.
func kindOf(raw []byte) string {
	switch raw[0] {
	case '{':
		return "object"
	case '[':
		return "array"
	case '"':
		return "string"
	case 't', 'f':
		return "bool"
	}
	return "number " + strings.TrimSpace(string(raw))
}
