package adapter

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/api/v1alpha1"
)

const testUID = "0b6ad3a8-5a44-4c3e-9d4c-0d7c6a7b1c01"

func testRequest() PutRequest {
	return PutRequest{
		UID: testUID, Namespace: "crawl", Proxy: "eu.a", SpecHash: "v1-0a", Generation: 3, Port: 3128,
		Placement: v1alpha1.Placement{Zone: "europe-west1-b", FallbackZones: []v1alpha1.Zone{"europe-west1-c"}},
		UserData:  "#cloud-config\n", Replace: "42",
	}
}

func encoded(t testing.TB, v any) string {
	t.Helper()
	b, err := json.Marshal(v)
	require.NoError(t, err)
	return string(b)
}

func TestDecodePutRequestOfTheClient(t *testing.T) {
	want := testRequest()
	got, err := DecodePutRequest(strings.NewReader(encoded(t, want)), v1alpha1.InstanceName(testUID))
	require.NoError(t, err)
	assert.Equal(t, want, got)
}

func TestDecodePutRequestRefuses(t *testing.T) {
	change := func(f func(*PutRequest)) string {
		req := testRequest()
		f(&req)
		return encoded(t, req)
	}
	tests := map[string]struct{ body, want string }{
		"nothing":          {"", "not a JSON object"},
		"null":             {"null", "not a JSON object"},
		"a list":           {"[]", "not a JSON object"},
		"two objects":      {"{} {}", "after top-level value"},
		"unknown field":    {`{"uuid":"x"}`, `unknown field "uuid"`},
		"wrong case":       {`{"UID":"x"}`, `unknown field "UID"`},
		"repeated field":   {`{"uid":"x","uid":"y"}`, `duplicate field "uid"`},
		"unknown nested":   {`{"placement":{"zoen":"x"}}`, `unknown field "placement.zoen"`},
		"port as string":   {`{"port":"3128"}`, "cannot unmarshal"},
		"no uid":           {change(func(r *PutRequest) { r.UID = "" }), `uid ""`},
		"uid of capitals":  {change(func(r *PutRequest) { r.UID = "ABC" }), `uid "ABC"`},
		"another's name":   {change(func(r *PutRequest) { r.UID = "other" }), "the instance of uid other is called"},
		"no namespace":     {change(func(r *PutRequest) { r.Namespace = "" }), "namespace"},
		"long namespace":   {change(func(r *PutRequest) { r.Namespace = strings.Repeat("n", 64) }), "namespace"},
		"no proxy":         {change(func(r *PutRequest) { r.Proxy = "" }), "proxy"},
		"no hash":          {change(func(r *PutRequest) { r.SpecHash = "" }), "specHash"},
		"hash not a label": {change(func(r *PutRequest) { r.SpecHash = "v1.A" }), "specHash"},
		"generation":       {change(func(r *PutRequest) { r.Generation = -1 }), "generation -1"},
		"port 0":           {change(func(r *PutRequest) { r.Port = 0 }), "port 0"},
		"port too high":    {change(func(r *PutRequest) { r.Port = 65536 }), "port 65536"},
		"user data":        {change(func(r *PutRequest) { r.UserData = strings.Repeat("x", MaxUserDataBytes+1) }), "1048577 bytes"},
		"replace":          {change(func(r *PutRequest) { r.Replace = strings.Repeat("1", 129) }), "replace"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			_, err := DecodePutRequest(strings.NewReader(tt.body), v1alpha1.InstanceName(testUID))
			require.ErrorIs(t, err, ErrInvalid)
			assert.ErrorContains(t, err, tt.want)
			assert.Less(t, len(err.Error()), 2000, "hostile input is clipped")
		})
	}
}

func TestDecodePutRequestListsAllErrors(t *testing.T) {
	_, err := DecodePutRequest(strings.NewReader(`{"uid":"x"}`), "proxy-x")
	for _, want := range []string{"name", "namespace", "proxy", "specHash", "port"} {
		assert.ErrorContains(t, err, want)
	}
}

func TestDecodePutRequestKeepsReadErrors(t *testing.T) {
	_, err := DecodePutRequest(iotest.ErrReader(io.ErrUnexpectedEOF), "x")
	assert.ErrorIs(t, err, io.ErrUnexpectedEOF)
	assert.NotErrorIs(t, err, ErrInvalid, "a broken connection is nobody's mistake")
}

// Row E4 of the field study: secrets leak into logs when a struct that contains them
// is printed.
func TestE4PutRequestDoesNotPrintUserData(t *testing.T) {
	req := testRequest()
	req.UserData = "CANARY"
	var out bytes.Buffer
	slog.New(slog.NewJSONHandler(&out, nil)).Info("x", "req", req, "ptr", &req)
	slog.New(slog.NewTextHandler(&out, nil)).Info("x", "req", req)
	fmt.Fprintf(&out, "%v %+v %#v %s", req, req, req, &req)
	assert.NotContains(t, out.String(), "CANARY")
	assert.Contains(t, out.String(), "6 bytes of user data")
}

func FuzzDecodePutRequest(f *testing.F) {
	f.Add([]byte(encoded(f, testRequest())), v1alpha1.InstanceName(testUID))
	f.Add([]byte(`{"uid":"x","uid":"y"}`), "")
	f.Add([]byte("{\"userData\":\"\xff\"}"), "proxy-x")
	f.Fuzz(func(t *testing.T, body []byte, name string) {
		req, err := DecodePutRequest(bytes.NewReader(body), name)
		if err != nil {
			require.ErrorIs(t, err, ErrInvalid)
			return
		}
		require.Equal(t, v1alpha1.InstanceName("")[:6], name[:6])
		again, err := DecodePutRequest(strings.NewReader(encoded(t, req)), name)
		require.NoError(t, err, "what was accepted is accepted again")
		require.Equal(t, encoded(t, req), encoded(t, again))
	})
}
