package metacontroller

import (
	"encoding/json"
	"errors"
	"fmt"
)

// errSyntax: the text is not JSON.
var errSyntax = errors.New("invalid JSON")

// maxDepth of nested objects and arrays, as in encoding/json.
const maxDepth = 10_000

// scanner steps once through a JSON text. It accepts what encoding/json accepts
// and finds where values begin and end, no more: with a general decoder, every
// level of a request is scanned anew for each level above it.
type scanner struct {
	text  []byte
	at    int
	depth int
}

// peek returns the byte at hand, 0 at the end.
func (s *scanner) peek() byte {
	if s.at < len(s.text) {
		return s.text[s.at]
	}
	return 0
}

// isObject reports whether an object begins here.
func (s *scanner) isObject() bool { return s.peek() == '{' }

// isNull reports whether a null is here.
func (s *scanner) isNull() bool { return s.peek() == 'n' }

// space moves to the next token.
func (s *scanner) space() {
	for s.at < len(s.text) {
		switch s.text[s.at] {
		case ' ', '\t', '\n', '\r':
			s.at++
		default:
			return
		}
	}
}

// take moves behind c and the white space around it, if c comes next.
func (s *scanner) take(c byte) bool {
	s.space()
	if s.peek() != c {
		return false
	}
	s.at++
	s.space()
	return true
}

// object calls visit for every member of the object that begins here, in the
// order of the text, and stops at the first error. A repeated name is an error.
// visit finds the scanner in front of the member's value and must move it
// behind, by value or object.
func (s *scanner) object(visit func(name string) error) error {
	seen := map[string]bool{}
	return s.members(func(quoted []byte) error {
		name, err := unquote(quoted)
		if err != nil {
			return err
		}
		if seen[name] {
			return fmt.Errorf("duplicate field %q", name)
		}
		seen[name] = true
		return visit(name)
	})
}

// value returns the value that begins here, in the memory of the text, and
// moves behind it.
func (s *scanner) value() (json.RawMessage, error) {
	start := s.at
	if err := s.skip(); err != nil {
		return nil, err
	}
	return s.text[start:s.at:s.at], nil
}

// end reports an error when anything is left.
func (s *scanner) end() error {
	if s.space(); s.at != len(s.text) {
		return errSyntax
	}
	return nil
}

// unquote decodes a JSON string.
func unquote(quoted []byte) (string, error) {
	inner := quoted[1 : len(quoted)-1]
	for _, c := range inner {
		if c == '\\' || c >= 0x80 { // escapes, and bytes that may not be UTF-8
			var s string
			err := json.Unmarshal(quoted, &s)
			return s, err
		}
	}
	return string(inner), nil
}
