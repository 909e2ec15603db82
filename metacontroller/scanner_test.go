package metacontroller

import (
	"bytes"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	kjson "sigs.k8s.io/json"
)

// collect puts the members of an object into a map.
func collect(object string) (map[string]json.RawMessage, error) {
	out := map[string]json.RawMessage{}
	s := &scanner{text: []byte(object)}
	err := s.object(func(name string) (err error) {
		out[name], err = s.value()
		return err
	})
	return out, errors.Join(err, s.end())
}

func TestScannerFindsMembers(t *testing.T) {
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

func TestScannerRefusesRepeatedNames(t *testing.T) {
	for object, name := range map[string]string{
		`{"a":1,"b":2,"a":3}`:       `"a"`,
		`{"a":1,"\u0061":3}`:        `"a"`,
		"{\"\xff\":0,\"\xfe\":0}":   "\"\ufffd\"",
		`{"":1, "":1}`:              `""`,
		`{"x":{"a":1,"a":1},"x":1}`: `"x"`,
	} {
		_, err := collect(object)
		require.ErrorContains(t, err, "duplicate field "+name, object)
	}
	_, err := collect(`{"x":{"a":1,"a":1}}`)
	require.NoError(t, err, "that is for whoever reads x")
}

func TestScannerStopsAtTheFirstError(t *testing.T) {
	stop, calls := errors.New("stop"), 0
	s := &scanner{text: []byte(`{"a":1,"b":2}`)}
	err := s.object(func(string) error { calls++; return stop })
	require.ErrorIs(t, err, stop)
	require.Equal(t, 1, calls)
}

func TestScannerCannotWriteIntoEachOther(t *testing.T) {
	got, err := collect(`{"a":1,"b":2}`)
	require.NoError(t, err)
	_ = append(got["a"], "xxx"...)
	require.Equal(t, "2", string(got["b"]))
}

func TestScannerKnowsJSON(t *testing.T) {
	deep := func(n int) string { return strings.Repeat("[", n) + strings.Repeat("]", n) }
	for _, text := range []string{
		`0`, `-0`, `10`, `-1.5`, `1e5`, `1E+05`, `0.0e-0`, `null`, `true`, `false`, `""`, `"\u00ff\n\/"`, `[]`, `[ ]`, `[1, 2]`, `{}`, `{ }`, `{"a" : 1 , "b":[]}`, "\"\x7f\xff\"", deep(maxDepth),
		``, ` `, `00`, `01`, `-`, `+1`, `.5`, `1.`, `1e`, `1e+`, `0x1`, `1_0`, `NaN`, `nul`, `nulll`, `True`, `"`, `"\`, `"\x"`, `"\u12"`, `"\u12g4"`, "\"\n\"", "\"\x00\"", `'a'`,
		`[`, `[1`, `[1,`, `[1,]`, `[,1]`, `[1 2]`, `]`, `{`, `{"a"`, `{"a":`, `{"a":1`, `{"a":1,`, `{"a":1,}`, `{,}`, `{a:1}`, `{"a" 1}`, `{"a":1 "b":2}`, `{1:2}`, `}`, `{]`, `[}`, `1 1`, `{}{}`, "\u00a01", deep(maxDepth + 1), `{"a":` + deep(maxDepth) + `}`,
	} {
		checkAgainstJSON(t, []byte(text))
	}
}

// checkAgainstJSON: the scanner and encoding/json agree on what is JSON, and on
// the members of an object without repeated names.
func checkAgainstJSON(t *testing.T, text []byte) {
	t.Helper()
	s := &scanner{text: text}
	s.space()
	start := s.at
	value, err := s.value()
	valid := err == nil && s.end() == nil
	require.Equal(t, json.Valid(text), valid, "%.200s", text)
	if !valid {
		return
	}
	require.Equal(t, string(bytes.Trim(text, " \t\r\n")), string(value))
	if text[start] != '{' {
		return
	}
	var want map[string]json.RawMessage
	require.NoError(t, json.Unmarshal(text, &want))
	got, err := collect(string(value))
	if err != nil {
		require.ErrorContains(t, err, "duplicate field")
		return
	}
	require.Len(t, got, len(want))
	for name, value := range want {
		require.Equal(t, string(value), string(got[name]))
	}
}

// FuzzScanner holds the scanner against encoding/json.
func FuzzScanner(f *testing.F) {
	files, err := filepath.Glob("testdata/recorded/*.json")
	require.NoError(f, err)
	for _, file := range files {
		b, err := os.ReadFile(file)
		require.NoError(f, err)
		f.Add(b)
	}
	f.Add([]byte(`{"a":"\\\"","b":[{"c":"]"}],"d":-0.1e+7}`))
	f.Add([]byte(`{"\u0000":"\ud800"} `))
	f.Fuzz(checkAgainstJSON)
}

// decodeReference reads a request by reflection alone: slower, and written
// against other libraries than DecodeRequest.
func decodeReference(body []byte) (*Request, error) {
	var req Request
	strict, err := kjson.UnmarshalStrict(body, &req)
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

// FuzzDecodeRequestAgainstReference: what DecodeRequest accepts, the reference
// accepts as well and reads alike, so that nothing got past a check on the way
// to speed.
func FuzzDecodeRequestAgainstReference(f *testing.F) {
	files, err := filepath.Glob("testdata/recorded/*.json")
	require.NoError(f, err)
	for _, file := range files {
		b, err := os.ReadFile(file)
		require.NoError(f, err)
		f.Add(b)
	}
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
