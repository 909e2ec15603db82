package webhooks

import (
	"bytes"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

// seeds adds the recorded requests and the fixtures of a hook.
func seeds(f *testing.F, hook string) {
	f.Helper()
	for _, pattern := range []string{recordedDir + "/*" + hook + "*.json", "testdata/hooks/" + hook + "/*.request.json"} {
		files, err := filepath.Glob(pattern)
		require.NoError(f, err)
		require.NotEmpty(f, files)
		for _, file := range files {
			body, err := os.ReadFile(file)
			require.NoError(f, err)
			f.Add(body)
		}
	}
	f.Add([]byte(`{"parent":{"kind":"Proxy","metadata":{"name":"a","uid":"b"},"spec":{"mode":"External"}},"children":{"Pod.v1":{},"ProxyProbe.crawl.example.com/v1alpha1":{}}}`))
	f.Add([]byte(`null`))
}

// fuzzHook sends anything at all to a hook: it refuses in words, or answers what
// Metacontroller can live with.
func fuzzHook(f *testing.F, hook string, check func(t *testing.T, answer []byte)) {
	seeds(f, hook)
	handler := fixtureHooks().Handler(nil)
	f.Fuzz(func(t *testing.T, body []byte) {
		rec := httptest.NewRecorder()
		req := httptest.NewRequest(http.MethodPost, "/hooks/"+hook, bytes.NewReader(body))
		req.Header = asJSON()
		handler.ServeHTTP(rec, req)
		switch rec.Code {
		case http.StatusOK:
			check(t, rec.Body.Bytes())
		case http.StatusBadRequest, http.StatusInternalServerError:
			require.NotContains(t, rec.Body.String(), "a bug in webhooks", "it panicked")
			require.NotEmpty(t, rec.Body.String())
		default:
			require.Fail(t, "unexpected code", rec.Code)
		}
	})
}

func safeAnswer(t *testing.T, answer []byte) {
	t.Helper()
	resp := strictly(t, answer)
	require.NotEmpty(t, resp.Status)
	require.NotNil(t, resp.Children)
	_, err := resp.Encode()
	require.NoError(t, err)
}

func FuzzSync(f *testing.F)     { fuzzHook(f, "sync", safeAnswer) }
func FuzzFinalize(f *testing.F) { fuzzHook(f, "finalize", safeAnswer) }

func FuzzCustomize(f *testing.F) {
	fuzzHook(f, "customize", func(t *testing.T, answer []byte) {
		var v struct {
			RelatedResources []any `json:"relatedResources"`
		}
		require.NoError(t, json.Unmarshal(answer, &v))
		require.NotNil(t, v.RelatedResources)
	})
}
