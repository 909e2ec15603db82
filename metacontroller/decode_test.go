package metacontroller_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/stretchr/testify/require"

	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/metacontroller"
)

const (
	podKind   = "Pod.v1"
	probeKind = "ProxyProbe.crawl.example.com/v1alpha1"
)

// recorded returns the recorded requests by file name without extension.
func recorded(t testing.TB) map[string][]byte {
	t.Helper()
	files, err := filepath.Glob("testdata/recorded/*.json")
	require.NoError(t, err)
	out := map[string][]byte{}
	for _, file := range files {
		b, err := os.ReadFile(file)
		require.NoError(t, err)
		out[strings.TrimSuffix(filepath.Base(file), ".json")] = b
	}
	require.GreaterOrEqual(t, len(out), 12)
	return out
}

func TestRecordedRequestsDecode(t *testing.T) {
	for name, body := range recorded(t) {
		t.Run(name, func(t *testing.T) {
			if strings.Contains(name, "customize") {
				req, err := metacontroller.DecodeCustomizeRequest(bytes.NewReader(body))
				require.NoError(t, err)
				require.NotEmpty(t, req.Controller)
				require.NotEmpty(t, req.Parent)
				return
			}
			req, err := metacontroller.DecodeRequest(bytes.NewReader(body), podKind, probeKind)
			require.NoError(t, err)
			require.Equal(t, strings.Contains(name, "finalize"), req.Finalizing)
			require.Equal(t, []string{podKind, probeKind}, slices.Sorted(maps.Keys(req.Children)))
			require.JSONEq(t, string(body), encode(t, req), "nothing is lost on the way")
		})
	}
}

func encode(t testing.TB, v any) string {
	t.Helper()
	b, err := json.Marshal(v)
	require.NoError(t, err)
	return string(b)
}

func TestDecodeRequestRefuses(t *testing.T) {
	const tail = `"related":{},"finalizing":false}`
	tests := []struct {
		name, body, want string
	}{
		{"nothing", ``, "not a JSON object"},
		{"null", `null`, "not a JSON object"},
		{"a list", `[]`, "not a JSON object"},
		{"half an object", `{"parent":{}`, "unexpected EOF"},
		{"two objects", `{"parent":{},"children":{"Pod.v1":{}}} {}`, "after the top-level value"},
		{"no parent", `{"children":{"Pod.v1":{}},` + tail, "parent is missing"},
		{"a null parent", `{"parent":null,"children":{"Pod.v1":{}},` + tail, "parent is missing"},
		{"a string as parent", `{"parent":"x","children":{"Pod.v1":{}},` + tail, "parent is missing or not an object"},
		{"parent in another case", `{"Parent":{},"children":{"Pod.v1":{}},` + tail, "parent is missing"},
		{"a space that is none in JSON", "\u00a0{}", "not a JSON object"},
		{"bad JSON in a field that is not decoded", `{"parent":{},"controller":{"a":tru},"children":{"Pod.v1":{}},` + tail, "invalid character"},
		{"a repeated kind", `{"parent":{},"children":{"Pod.v1":{},"Pod.v1":{}},` + tail, `duplicate object member name "Pod.v1"`},
		{"a repeated child", `{"parent":{},"children":{"Pod.v1":{"n":{"metadata":{"name":"n"}},"n":{"metadata":{"name":"n"}}}},` + tail, `duplicate object member name "n"`},
		{"a repeated child, written differently", `{"parent":{},"children":{"Pod.v1":{"n":{"metadata":{"name":"n"}},"\u006e":{"metadata":{"name":"n"}}}},` + tail, `duplicate object member name "n"`},
		{"a child with two names", `{"parent":{},"children":{"Pod.v1":{"n":{"metadata":{"name":"n","name":"m"}}}},` + tail, `duplicate object member name "name"`},
		{"a child with two metadata", `{"parent":{},"children":{"Pod.v1":{"n":{"metadata":{"name":"n"},"metadata":{"name":"m"}}}},` + tail, `duplicate object member name "metadata"`},
		{"a kind in a list", `{"parent":{},"children":{"Pod.v1":[]},` + tail, `children["Pod.v1"] is missing or not an object`},
		{"a child in a list", `{"parent":{},"children":{"Pod.v1":{"n":[]}},` + tail, `children["Pod.v1"]["n"] is missing or not an object`},
		{"a child with a word as metadata", `{"parent":{},"children":{"Pod.v1":{"n":{"metadata":"m"}}},` + tail, "metadata is missing or not an object"},
		{"a child with two of any field", `{"parent":{},"children":{"Pod.v1":{"n":{"metadata":{"name":"n"},"x":1,"x":2}}},` + tail, `duplicate object member name "x"`},
		{"a child with two of any metadata field", `{"parent":{},"children":{"Pod.v1":{"n":{"metadata":{"name":"n","x":1,"x":2}}}},` + tail, `duplicate object member name "x"`},
		{"a repeated unknown field", `{"parent":{},"children":{"Pod.v1":{}},"x":1,"x":2,` + tail, `duplicate object member name "x"`},
		{"a repeated finalizing", `{"parent":{},"children":{"Pod.v1":{}},"finalizing":true,` + tail, `duplicate object member name "finalizing"`},
		{"a parent with a repeated field", `{"parent":{"a":1,"a":2},"children":{"Pod.v1":{}},` + tail, `duplicate object member name "a"`},
		{"bad JSON in an unknown field", `{"parent":{},"new":{"a":tru},"children":{"Pod.v1":{}},` + tail, "invalid character"},
		{"a repeated field", `{"parent":{},"parent":{},"children":{"Pod.v1":{}},` + tail, `duplicate object member name "parent"`},
		{"no children", `{"parent":{},` + tail, `children has no "Pod.v1"`},
		{"no Pods", `{"parent":{},"children":{"Job.batch/v1":{}},` + tail, `children has no "Pod.v1": the CompositeController must list`},
		{"null Pods", `{"parent":{},"children":{"Pod.v1":null},` + tail, `children has no "Pod.v1"`},
		{"children in a list", `{"parent":{},"children":[],` + tail, "children is missing or not an object"},
		{"a null child", `{"parent":{},"children":{"Pod.v1":{"ns/a":null}},` + tail, `children["Pod.v1"]["ns/a"] is missing or not an object`},
		{"a child keyed as by hook v1", `{"parent":{},"children":{"Pod.v1":{"a":{"metadata":{"name":"a","namespace":"ns"}}}},` + tail, "version: v2"},
		{"a child without metadata", `{"parent":{},"children":{"Pod.v1":{"ns/a":{}}},` + tail, "version: v2"},
		{"a child with a number as name", `{"parent":{},"children":{"Pod.v1":{"ns/a":{"metadata":{"name":1}}}},` + tail, "metadata.name is not a string"},
		{"a null related object", `{"parent":{},"children":{"Pod.v1":{}},"related":{"Secret.v1":{"ns/a":null}},"finalizing":false}`, `related["Secret.v1"]`},
		{"a word as finalizing", `{"parent":{},"children":{"Pod.v1":{}},"related":{},"finalizing":"yes"}`, "finalizing is not a boolean"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			_, err := metacontroller.DecodeRequest(strings.NewReader(tt.body), podKind)
			require.ErrorIs(t, err, metacontroller.ErrBadRequest)
			require.ErrorContains(t, err, tt.want)
		})
	}
}

func TestDecodeCustomizeRequestRefuses(t *testing.T) {
	for body, want := range map[string]string{
		``:                                  "not a JSON object",
		`{}`:                                "parent is missing",
		`{"parent":[]}`:                     "not an object",
		`{"parent":{},"children":{}}`:       "children in a customize request",
		`{"parent":{},"parent":{}}`:         `duplicate object member name "parent"`,
		`{"controller":{},"parent":{}}null`: "after the top-level value",
	} {
		_, err := metacontroller.DecodeCustomizeRequest(strings.NewReader(body))
		require.ErrorIs(t, err, metacontroller.ErrBadRequest, body)
		require.ErrorContains(t, err, want, body)
	}
}

// A minor release of Metacontroller may add a field to the envelope.
func TestUnknownEnvelopeFieldsAreReported(t *testing.T) {
	req, err := metacontroller.DecodeRequest(strings.NewReader(`{"parent":{},"attachments":{"x":[1]},"children":{"Pod.v1":{}},"Related":1,"related":{},"finalizing":true}`), podKind)
	require.NoError(t, err)
	require.Equal(t, []string{"attachments", "Related"}, req.Unknown)
	require.Nil(t, req.Related["x"])
	require.True(t, req.Finalizing)

	customize, err := metacontroller.DecodeCustomizeRequest(strings.NewReader(`{"parent":{},"attachments":{}}`))
	require.NoError(t, err)
	require.Equal(t, []string{"attachments"}, customize.Unknown)
}

func TestUnknownEnvelopeFieldsAreBounded(t *testing.T) {
	var body strings.Builder
	body.WriteString(`{"parent":{}`)
	for i := range 1000 {
		fmt.Fprintf(&body, `,"%d%s":0`, i, strings.Repeat("x", 1000))
	}
	body.WriteString("}")
	req, err := metacontroller.DecodeRequest(strings.NewReader(body.String()))
	require.NoError(t, err)
	require.Len(t, req.Unknown, 16)
	for _, name := range req.Unknown {
		require.Len(t, name, 64)
	}
}

func TestReadErrorsKeepTheirIdentity(t *testing.T) {
	boom := errors.New("body too large")
	_, err := metacontroller.DecodeRequest(iotest.ErrReader(boom), podKind)
	require.ErrorIs(t, err, boom)
	require.NotErrorIs(t, err, metacontroller.ErrBadRequest, "the caller answers 413, not 400")
}

func TestClusterScopedObjectsAreKeyedByName(t *testing.T) {
	body := `{"parent":{},"children":{"Pod.v1":{}},"related":{"Node.v1":{"n1":{"metadata":{"name":"n1"}}}},"finalizing":false}`
	req, err := metacontroller.DecodeRequest(strings.NewReader(body), podKind)
	require.NoError(t, err)
	require.Contains(t, req.Related["Node.v1"], metacontroller.Key("", "n1"))
}

func FuzzDecodeRequest(f *testing.F) {
	for name, body := range recorded(f) {
		if !strings.Contains(name, "customize") {
			f.Add(body)
		}
	}
	f.Add([]byte(`{"parent":{},"children":{"Pod.v1":{"a":null}},"related":null}`))
	f.Add([]byte(`{"children":{"Pod.v1":{}}}`))
	f.Fuzz(func(t *testing.T, body []byte) {
		req, err := metacontroller.DecodeRequest(bytes.NewReader(body), podKind)
		if err != nil {
			require.ErrorIs(t, err, metacontroller.ErrBadRequest)
			return
		}
		require.NotNil(t, req.Children[podKind])
		require.True(t, json.Valid(req.Parent))
		again, err := metacontroller.DecodeRequest(strings.NewReader(encode(t, req)), podKind)
		require.NoError(t, err, "what was accepted once is accepted again")
		require.Equal(t, encode(t, req), encode(t, again))
	})
}

func FuzzDecodeCustomizeRequest(f *testing.F) {
	for name, body := range recorded(f) {
		if strings.Contains(name, "customize") {
			f.Add(body)
		}
	}
	f.Add([]byte(`{"parent":{"spec":{}}}`))
	f.Fuzz(func(t *testing.T, body []byte) {
		req, err := metacontroller.DecodeCustomizeRequest(bytes.NewReader(body))
		if err != nil {
			require.ErrorIs(t, err, metacontroller.ErrBadRequest)
			return
		}
		_, err = metacontroller.DecodeCustomizeRequest(strings.NewReader(encode(t, req)))
		require.NoError(t, err)
	})
}
