package metacontroller

import (
	"bytes"
	"encoding/json"
	"fmt"
)

// jsonSpace is what JSON takes for white space.
const jsonSpace = " \t\r\n"

// scanner steps once through a text that has passed json.Valid, and only finds
// where values begin and end. Without it every level of a request is scanned
// anew for each level above it.
type scanner struct {
	text []byte
	at   int
}

// next moves to the beginning of the next value, or to the end of the object or
// array, and returns the byte there.
func (s *scanner) next() byte {
	for {
		switch c := s.text[s.at]; c {
		case ' ', '\t', '\n', '\r', ',', ':':
			s.at++
		default:
			return c
		}
	}
}

// object calls visit for every member of the object that begins here, in the
// order of the text, and stops at the first error. A repeated name is an error.
// visit finds the scanner in front of the member's value and must move it
// behind, by value or object.
func (s *scanner) object(visit func(name string) error) error {
	s.at++
	seen := map[string]bool{}
	for s.next() != '}' {
		name, err := unquote(s.value())
		if err != nil {
			return err
		}
		if seen[name] {
			return fmt.Errorf("duplicate field %q", name)
		}
		seen[name] = true
		s.next()
		if err := visit(name); err != nil {
			return err
		}
	}
	s.at++
	return nil
}

// isObject reports whether an object begins here.
func (s *scanner) isObject() bool { return s.text[s.at] == '{' }

// isNull reports whether a null is here.
func (s *scanner) isNull() bool { return s.text[s.at] == 'n' }

// value returns the value that begins here, in the memory of the text, and
// moves behind it.
func (s *scanner) value() json.RawMessage {
	start := s.at
	switch s.text[start] {
	case '"':
		s.at = afterString(s.text, start)
	case '{', '[':
		s.at = afterNested(s.text, start)
	default:
		s.at = afterLiteral(s.text, start)
	}
	return s.text[start:s.at:s.at]
}

func afterLiteral(text []byte, at int) int {
	if n := bytes.IndexAny(text[at:], ",}]"+jsonSpace); n >= 0 {
		return at + n
	}
	return len(text)
}

func afterNested(text []byte, at int) int {
	for depth := 0; ; {
		switch text[at] {
		case '"':
			at = afterString(text, at)
			continue
		case '{', '[':
			depth++
		case '}', ']':
			depth--
		}
		at++
		if depth == 0 {
			return at
		}
	}
}

// afterString finds the quote that no backslash hides: one with an even number
// of them in front.
func afterString(text []byte, at int) int {
	for at++; ; {
		start := at
		at += bytes.IndexByte(text[start:], '"') + 1
		inner := text[start : at-1]
		if (len(inner)-len(bytes.TrimRight(inner, `\`)))%2 == 0 {
			return at
		}
	}
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
