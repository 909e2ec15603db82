package api

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"mime"
	"net/http"
	"os"
	"slices"
	"strings"
	"unicode/utf8"
)

// maxBody is the most bytes of a request body that are read.
const maxBody = 64 << 10

// fields are the members that a JSON object may have, with what to decode each
// into.
type fields map[string]any

// decodeBody reads the request's body, which must be one JSON object with no
// members but these, none of them twice. Names are taken as they are written:
// "TTLSeconds" is unknown.
func decodeBody(r *http.Request, into fields) error {
	body, err := readBody(r)
	if err != nil {
		return err
	}
	if len(bytes.TrimSpace(body)) == 0 {
		return failf(codeInvalidRequest, "the request body is empty; send a JSON object with any of %s", into.names())
	}
	return decodeObject(body, into)
}

// decodeOptionalBody takes no body at all, too.
func decodeOptionalBody(r *http.Request, into fields) error {
	body, err := readBody(r)
	if err != nil || len(bytes.TrimSpace(body)) == 0 {
		return err
	}
	return decodeObject(body, into)
}

func readBody(r *http.Request) ([]byte, error) {
	if err := checkContentType(r.Header.Get("Content-Type")); err != nil {
		return nil, err
	}
	body, err := io.ReadAll(r.Body)
	var tooLarge *http.MaxBytesError
	switch {
	case errors.As(err, &tooLarge):
		return nil, err
	case errors.Is(err, os.ErrDeadlineExceeded):
		return nil, failf(codeInvalidRequest, "the request body did not come in time; send it together with the header")
	case err != nil:
		return nil, failf(codeInvalidRequest, "the request body broke off: %s", clipError(err))
	case !utf8.Valid(body):
		return nil, failf(codeInvalidRequest, "the request body is not valid JSON: it is not UTF-8")
	}
	return body, nil
}

// checkContentType takes JSON, no type at all, and the type that curl -d puts
// on whatever it sends.
func checkContentType(value string) error {
	if value == "" {
		return nil
	}
	mediaType, _, err := mime.ParseMediaType(value)
	if err == nil && (mediaType == "application/json" || mediaType == "application/x-www-form-urlencoded") {
		return nil
	}
	return failf(codeUnsupportedMediaType, "Content-Type %q is not taken; send JSON as application/json", clip(value))
}

func decodeObject(body []byte, into fields) error {
	dec := json.NewDecoder(bytes.NewReader(body))
	if tok, err := dec.Token(); err != nil {
		return invalidJSON(err)
	} else if tok != json.Delim('{') {
		return failf(codeInvalidRequest, "the request body is not a JSON object; send one with any of %s", into.names())
	}
	seen := map[string]bool{}
	for dec.More() {
		if err := decodeField(dec, into, seen); err != nil {
			return err
		}
	}
	if _, err := dec.Token(); err != nil {
		return invalidJSON(err)
	}
	if _, err := dec.Token(); !errors.Is(err, io.EOF) {
		return failf(codeInvalidRequest, "the request body goes on after the JSON object; send one object")
	}
	return nil
}

func decodeField(dec *json.Decoder, into fields, seen map[string]bool) error {
	tok, err := dec.Token()
	if err != nil {
		return invalidJSON(err)
	}
	name, _ := tok.(string) // between braces, only strings come first
	target, ok := into[name]
	switch {
	case !ok:
		return failf(codeInvalidRequest, "unknown field %q; known are %s", clip(name), into.names())
	case seen[name]:
		return failf(codeInvalidRequest, "field %q comes twice", name)
	}
	seen[name] = true
	err = dec.Decode(target)
	var refused *apiError
	var wrongType *json.UnmarshalTypeError
	switch {
	case errors.As(err, &refused):
		return refused
	case errors.As(err, &wrongType):
		return failf(codeInvalidRequest, "field %q: want %s, got %s", name, describe(target), clip(wrongType.Value))
	case err != nil:
		return invalidJSON(err)
	}
	return nil
}

func invalidJSON(err error) error {
	if errors.Is(err, io.EOF) {
		err = io.ErrUnexpectedEOF
	}
	return failf(codeInvalidRequest, "the request body is not valid JSON: %s", clipError(err))
}

// describe names a Go type in JSON's words.
func describe(target any) string {
	switch target.(type) {
	case *wholeNumber:
		return "a whole number"
	case *selector:
		return "an object whose values are strings"
	case *names:
		return "a list of strings"
	}
	return "a string"
}

func (f fields) names() string { return strings.Join(slices.Sorted(maps.Keys(f)), ", ") }

// clip keeps what a client sent from filling an error message.
func clip(s string) string { return clipTo(64, s) }

// clipError is clip for errors, which may repeat what a client sent.
func clipError(err error) string { return clipTo(160, err.Error()) }

func clipTo(most int, s string) string {
	if len(s) <= most {
		return s
	}
	return fmt.Sprintf("%s... (%d bytes)", strings.ToValidUTF8(s[:most], "?"), len(s))
}
