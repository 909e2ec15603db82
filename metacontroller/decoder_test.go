package metacontroller

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	kjson "sigs.k8s.io/json"
)

// collect decodes an object into a map with the decoder's primitives.
func collect(object string) (map[string]json.RawMessage, error) {
	out := map[string]json.RawMessage{}
	fields := map[string]func(*decoder) error{"object": func(d *decoder) error {
		if d.PeekKind() != '{' {
			return d.mismatch(notAnObject("object"))
		}
		_, err := d.members(func(name string) (err error) {
			out[name], err = d.value()
			return err
		})
		return err
	}}
	_, err := decodeEnvelope(strings.NewReader(`{"object":`+object+`}`), fields)
	return out, err
}

func TestDecoderFindsMembers(t *testing.T) {
	for object, want := range map[string]map[string]string{
		`{}`:     {},
		"{ \n }": {},
		`{"a":1,"b":"x","c":null,"d":true,"e":[],"f":{}}`:        {"a": `1`, "b": `"x"`, "c": `null`, "d": `true`, "e": `[]`, "f": `{}`},
		"{ \"a\" :\t1 ,\r\n\"b\" : [ 1 , { } ] }":                {"a": `1`, "b": `[ 1 , { } ]`},
		`{"a":{"b":{"c":[{"d":"}"}]}},"e":"]"}`:                  {"a": `{"b":{"c":[{"d":"}"}]}}`, "e": `"]"`},
		`{"a":"\"","b":"\\","c":"\\\"","d":"\\\\","e":"{\"x\""}`: {"a": `"\""`, "b": `"\\"`, "c": `"\\\""`, "d": `"\\\\"`, "e": `"{\"x\""`},
		`{"\u0061\n\"":-1.5e+3,"é":0}`:                           {"a\n\"": `-1.5e+3`, "é": `0`},
		"{\"\xff\":0}":                                           {"\ufffd": `0`},
		`{"":""}`:                                                {"": `""`},
	} {
		got, err := collect(object)
		require.NoError(t, err, object)
		require.Len(t, got, len(want), object)
		for name, value := range want {
			require.Equal(t, value, string(got[name]), "%s: %q", object, name)
		}
	}
}

func TestDecoderRefusesDuplicateNames(t *testing.T) {
	for object, name := range map[string]string{
		`{"a":1,"b":2,"a":3}`:       `"a"`,
		`{"a":1,"\u0061":3}`:        `"a"`,
		"{\"\xff\":0,\"\xfe\":0}":   "",
		`{"":1, "":1}`:              `""`,
		`{"x":{"a":1,"a":1},"x":1}`: `"a"`,
		`{"x":{"a":1,"a":1}}`:       `"a"`,
		`{"x":[{"a":1,"a":1}]}`:     `"a"`,
	} {
		_, err := collect(object)
		require.ErrorContains(t, err, "duplicate object member name "+name, object)
	}
}

func TestDecoderStopsAtTheFirstError(t *testing.T) {
	stop, calls := errors.New("stop"), 0
	field := func(*decoder) error { calls++; return stop }
	_, err := decodeEnvelope(strings.NewReader(`{"a":1,"b":2}`), map[string]func(*decoder) error{"a": field, "b": field})
	require.ErrorIs(t, err, stop)
	require.Equal(t, 1, calls)
}

func TestAppendingToAValueLeavesTheNextAlone(t *testing.T) {
	got, err := collect(`{"a":1,"b":2}`)
	require.NoError(t, err)
	_ = append(got["a"], "xxx"...)
	require.Equal(t, "2", string(got["b"]))
}

// maxDepth of nested objects and arrays in encoding/json and in jsontext.
const maxDepth = 10_000

func TestDecoderAcceptsWhatIsJSON(t *testing.T) {
	deep := func(n int) string { return strings.Repeat("[", n) + strings.Repeat("]", n) }
	for _, text := range []string{
		`0`, `-0`, `10`, `-1.5`, `1e5`, `1E+05`, `0.0e-0`, `null`, `true`, `false`, `""`, `"\u00ff\n\/"`, `[]`, `[ ]`, `[1, 2]`, `{}`, `{ }`, `{"a" : 1 , "b":[]}`, "\"\x7f\xff\"", deep(maxDepth - 1),
		``, ` `, `00`, `01`, `-`, `+1`, `.5`, `1.`, `1e`, `1e+`, `0x1`, `1_0`, `NaN`, `nul`, `nulll`, `True`, `"`, `"\`, `"\x"`, `"\u12"`, `"\u12g4"`, "\"\n\"", "\"\x00\"", `'a'`,
		`[`, `[1`, `[1,`, `[1,]`, `[,1]`, `[1 2]`, `]`, `{`, `{"a"`, `{"a":`, `{"a":1`, `{"a":1,`, `{"a":1,}`, `{,}`, `{a:1}`, `{"a" 1}`, `{"a":1 "b":2}`, `{1:2}`, `}`, `{]`, `[}`, `1 1`, `{}{}`, "\u00a01", deep(maxDepth), `{"a":` + deep(maxDepth-1) + `}`,
	} {
		checkAgainstJSON(t, []byte(text))
	}
}

// checkAgainstJSON: the decoder and encoding/json agree on what is JSON, and on
// the members of an object without duplicate names. The text is checked within
// an envelope, whose depth counts too.
func checkAgainstJSON(t *testing.T, text []byte) {
	t.Helper()
	var value json.RawMessage
	fields := map[string]func(*decoder) error{"value": func(d *decoder) (err error) {
		value, err = d.value()
		return err
	}}
	body := fmt.Appendf(nil, `{"value":%s}`, text)
	_, err := decodeEnvelope(bytes.NewReader(body), fields)
	if err != nil && strings.Contains(err.Error(), "duplicate object member name") {
		return
	}
	require.Equal(t, json.Valid(body), err == nil, "%.200s: %v", text, err)
	if err != nil || !json.Valid(text) { // a text such as 1,"x":2 is valid only within the envelope
		return
	}
	require.Equal(t, string(bytes.Trim(text, " \t\r\n")), string(value))
	var want map[string]json.RawMessage
	if json.Unmarshal(text, &want) != nil || want == nil {
		return
	}
	got, err := collect(string(text))
	require.NoError(t, err)
	require.Len(t, got, len(want))
	for name, value := range want {
		require.Equal(t, string(value), string(got[name]))
	}
}

func addRecorded(f *testing.F) {
	f.Helper()
	files, err := filepath.Glob("testdata/recorded/*.json")
	require.NoError(f, err)
	for _, file := range files {
		b, err := os.ReadFile(file)
		require.NoError(f, err)
		f.Add(b)
	}
}

// FuzzDecoder compares the decoder with encoding/json.
func FuzzDecoder(f *testing.F) {
	addRecorded(f)
	f.Add([]byte(`{"a":"\\\"","b":[{"c":"]"}],"d":-0.1e+7}`))
	f.Add([]byte(`{"\u0000":"\ud800"} `))
	f.Fuzz(checkAgainstJSON)
}

// decodeReference decodes a request with sigs.k8s.io/json: slower, and
// independent of DecodeRequest.
func decodeReference(body []byte) (*Request, error) {
	var req Request
	strict, err := kjson.UnmarshalStrict(body, &req, kjson.DisallowDuplicateFields)
	if err := errors.Join(append(strict, err)...); err != nil {
		return nil, err
	}
	if len(req.Parent) == 0 || req.Parent[0] != '{' {
		return nil, errors.New("parent")
	}
	for _, objects := range []Objects{req.Children, req.Related} {
		for _, kind := range objects {
			for key, raw := range kind {
				var o struct {
					Metadata struct{ Namespace, Name string }
				}
				if err := json.Unmarshal(raw, &o); err != nil || raw[0] != '{' || Key(o.Metadata.Namespace, o.Metadata.Name) != key {
					return nil, errors.New(key)
				}
			}
		}
	}
	return &req, nil
}

// FuzzDecodeRequestAgainstReference: the reference accepts what DecodeRequest
// accepts and decodes it alike, so no check was lost to speed.
func FuzzDecodeRequestAgainstReference(f *testing.F) {
	addRecorded(f)
	f.Add([]byte(`{"parent":{},"children":{"Pod.v1":{"n":{"metadata":{"name":"n"}}}},"related":null,"finalizing":true}`))
	f.Fuzz(func(t *testing.T, body []byte) {
		got, err := DecodeRequest(bytes.NewReader(body))
		if err != nil {
			return
		}
		want, err := decodeReference(body)
		require.NoError(t, err)
		g, err := json.Marshal(got)
		require.NoError(t, err)
		w, err := json.Marshal(want)
		require.NoError(t, err)
		require.Equal(t, string(w), string(g))
	})
}
