package api

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"os"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	strictjson "sigs.k8s.io/json"
)

// maxBody is the largest request body in bytes.
const maxBody = 64 << 10

// decodeBody decodes the request's body into a struct, whose members are all
// optional. The body must be one JSON object without other members, none of them
// twice. Names are case-sensitive: "TTLSeconds" is unknown.
func decodeBody(r *http.Request, into any) error {
	body, err := readBody(r)
	if err != nil {
		return err
	}
	if len(bytes.TrimSpace(body)) == 0 {
		return failf(codeInvalidRequest, "the request body is empty; send a JSON object with any of %s", memberNames(into))
	}
	return decodeObject(body, into)
}

// decodeOptionalBody is decodeBody for a body that may be empty.
func decodeOptionalBody(r *http.Request, into any) error {
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
		return nil, failf(codeInvalidRequest, "timed out reading the request body; send it together with the header")
	case err != nil:
		return nil, failf(codeInvalidRequest, "the request body broke off: %s", clipError(err))
	case !utf8.Valid(body):
		return nil, failf(codeInvalidRequest, "the request body is not valid JSON: it is not UTF-8")
	}
	return body, nil
}

// checkContentType accepts JSON, no type at all, and the default type of curl -d.
func checkContentType(value string) error {
	if value == "" {
		return nil
	}
	mediaType, _, err := mime.ParseMediaType(value)
	if err == nil && (mediaType == "application/json" || mediaType == "application/x-www-form-urlencoded") {
		return nil
	}
	return failf(codeUnsupportedMediaType, "Content-Type %q is not supported; send JSON as application/json", clip(value))
}

func decodeObject(body []byte, into any) error {
	strict, err := strictjson.UnmarshalStrict(body, into)
	var wrongType *json.UnmarshalTypeError
	switch {
	case errors.As(err, &wrongType) && wrongType.Field != "":
		name, _, _ := strings.Cut(wrongType.Field, ".")
		return failf(codeInvalidRequest, "field %q: want %s, got %s", name, memberType(into, name), clip(wrongType.Value))
	case wrongType != nil || err == nil && string(bytes.TrimSpace(body)) == "null":
		return failf(codeInvalidRequest, "the request body is not a JSON object; send one with any of %s", memberNames(into))
	case err != nil:
		return failf(codeInvalidRequest, "the request body is not valid JSON: %s", clipError(err))
	}
	if len(strict) == 0 {
		return nil
	}
	var field strictjson.FieldError
	if errors.As(strict[0], &field) {
		kind, _, _ := strings.Cut(strict[0].Error(), " ") // unknown or duplicate
		return failf(codeInvalidRequest, "%s field %q; known are %s", kind, clip(field.FieldPath()), memberNames(into))
	}
	return failf(codeInvalidRequest, "the request body: %s", clipError(strict[0]))
}

// memberNames lists the JSON names of a struct's members.
func memberNames(pointer any) string {
	var names []string
	for typ, i := reflect.TypeOf(pointer).Elem(), 0; i < typ.NumField(); i++ {
		names = append(names, typ.Field(i).Tag.Get("json"))
	}
	slices.Sort(names)
	return strings.Join(names, ", ")
}

// memberType describes the type of a member in JSON's terms.
func memberType(pointer any, name string) string {
	for typ, i := reflect.TypeOf(pointer).Elem(), 0; i < typ.NumField(); i++ {
		if typ.Field(i).Tag.Get("json") != name {
			continue
		}
		switch typ.Field(i).Type.Kind() {
		case reflect.Struct:
			return "a whole number"
		case reflect.Bool:
			return "true or false"
		case reflect.Map:
			return "an object whose values are strings"
		case reflect.Slice:
			return "a list of strings"
		}
	}
	return "a string"
}

// wholeNumber is a number of a request body, the zero value when it is absent or
// null. One outside of int64 is clamped and keeps its text, so that it is out of
// range rather than of the wrong type.
type wholeNumber struct {
	text  string
	value int64
}

func (n *wholeNumber) given() bool { return n.text != "" }

// UnmarshalJSON is called by the decoder, which has checked the syntax.
func (n *wholeNumber) UnmarshalJSON(raw []byte) error {
	if string(raw) == "null" {
		return nil
	}
	value, err := strconv.ParseInt(string(raw), 10, 64)
	if err != nil && !errors.Is(err, strconv.ErrRange) {
		return json.Unmarshal(raw, new(int64)) // its error names the type of raw
	}
	*n = wholeNumber{text: string(raw), value: value}
	return nil
}

// stringMap returns the map without pointers. A null value is refused, since no
// selector could mean it.
func stringMap(name string, in map[string]*string) (map[string]string, error) {
	if in == nil {
		return nil, nil
	}
	out := make(map[string]string, len(in))
	for k, v := range in {
		if v == nil {
			return nil, failf(codeInvalidRequest, "field %q: want an object whose values are strings, got null", name)
		}
		out[k] = *v
	}
	return out, nil
}

// stringList returns the list without pointers, and refuses null.
func stringList(name string, in []*string) ([]string, error) {
	var out []string
	for _, v := range in {
		if v == nil {
			return nil, failf(codeInvalidRequest, "field %q: want a list of strings, got null", name)
		}
		out = append(out, *v)
	}
	return out, nil
}

// clip bounds how much of a client's input an error message repeats.
func clip(s string) string { return clipTo(64, s) }

// clipError is clip for errors, which may repeat input.
func clipError(err error) string { return clipTo(160, err.Error()) }

func clipTo(most int, s string) string {
	if len(s) <= most {
		return s
	}
	return fmt.Sprintf("%s... (%d bytes)", strings.ToValidUTF8(s[:most], "?"), len(s))
}
