package adapter

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// serve serves on a unix socket and returns a client of it.
func serve(t *testing.T, h http.HandlerFunc) *Client {
	t.Helper()
	socket := filepath.Join(t.TempDir(), "s")
	ln, err := net.Listen("unix", socket)
	require.NoError(t, err)
	srv := httptest.NewUnstartedServer(h)
	srv.Listener = ln
	srv.Start()
	t.Cleanup(srv.Close)
	c := NewClient(socket, time.Minute)
	t.Cleanup(c.Close)
	return c
}

func TestClientRequestsAndResponses(t *testing.T) {
	var got []string
	c := serve(t, func(w http.ResponseWriter, r *http.Request) {
		got = append(got, r.Method+" "+r.URL.RequestURI())
		if r.Method == http.MethodPut {
			assert.Equal(t, "application/json", r.Header.Get("Content-Type"))
			var req PutRequest
			assert.NoError(t, json.NewDecoder(r.Body).Decode(&req))
			assert.Equal(t, testRequest(), req)
		}
		fmt.Fprint(w, `{"state":"Running","action":"None","instanceID":"7","providers":[{"name":"p"}]}`)
	})
	ctx := context.Background()

	inst, err := c.Put(ctx, "gcp-eu", "proxy-x", testRequest())
	require.NoError(t, err)
	assert.Equal(t, Instance{State: StateRunning, Action: ActionNone, InstanceID: "7"}, inst)
	_, err = c.Delete(ctx, "gcp/eu", "proxy-x", "u&v", "zones/z/instances/n")
	require.NoError(t, err)
	_, err = c.Delete(ctx, "gcp-eu", "proxy-x", "u", "")
	require.NoError(t, err)
	list, err := c.List(ctx)
	require.NoError(t, err)
	assert.Equal(t, "p", list.Providers[0].Name)
	assert.Equal(t, []string{
		"PUT /v1/instances/gcp-eu/proxy-x",
		"DELETE /v1/instances/gcp%2Feu/proxy-x?providerID=zones%2Fz%2Finstances%2Fn&uid=u%26v",
		"DELETE /v1/instances/gcp-eu/proxy-x?uid=u",
		"GET /v1/instances",
	}, got)
}

func TestClientErrorsUnwrapToTheirClass(t *testing.T) {
	body := func(code string) string { return `{"error":"` + code + `","message":"m"}` }
	tests := map[string]struct {
		status int
		body   string
		want   error
	}{
		"not ready":        {503, body(CodeNotReady), ErrNotReady},
		"unknown provider": {404, body(CodeUnknownProvider), ErrUnknownProvider},
		"deleted":          {409, body(CodeDeleted), ErrDeleted},
		"conflict":         {409, body(CodeConflict), ErrConflict},
		"invalid":          {400, body(CodeInvalid), ErrInvalid},
		"too large":        {413, body(CodeTooLarge), ErrInvalid},
		"internal":         {500, body(CodeInternal), ErrUnavailable},
		"no error body":    {502, "<html>", ErrUnavailable},
		"bad answer":       {200, "[]", ErrUnavailable},
		"unknown state":    {200, `{"state":"Gone"}`, ErrUnavailable},
		"no state":         {200, `{}`, ErrUnavailable},
		"endless":          {200, strings.Repeat(" ", MaxAnswerBytes+1), ErrUnavailable},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			c := serve(t, func(w http.ResponseWriter, _ *http.Request) {
				w.Header().Set("Retry-After", "7")
				w.WriteHeader(tt.status)
				fmt.Fprint(w, tt.body)
			})
			_, err := c.Put(context.Background(), "p", "n", testRequest())
			require.ErrorIs(t, err, tt.want)
			var status *StatusError
			require.Equal(t, strings.HasPrefix(tt.body, `{"error"`), errors.As(err, &status))
			if status != nil {
				assert.Equal(t, tt.status, status.Status)
				assert.Equal(t, 7*time.Second, status.RetryAfter)
				assert.ErrorContains(t, err, ": m")
			}
		})
	}
}

func TestClientWithoutAnAdapterIsUnavailable(t *testing.T) {
	c := NewClient(filepath.Join(t.TempDir(), "none"), time.Second)
	defer c.Close()
	_, err := c.Put(context.Background(), "p", "n", testRequest())
	require.ErrorIs(t, err, ErrUnavailable)
	_, err = c.List(context.Background())
	require.ErrorIs(t, err, ErrUnavailable)
}

func TestClientTimesOut(t *testing.T) {
	release := make(chan struct{})
	c := serve(t, func(http.ResponseWriter, *http.Request) { <-release })
	defer close(release)
	c.http.Timeout = 20 * time.Millisecond
	_, err := c.Put(context.Background(), "p", "n", testRequest())
	require.ErrorIs(t, err, ErrUnavailable)
	assert.ErrorContains(t, err, "Timeout")
}

// The client's error has the class of the adapter's error.
func TestErrorClassesOnBothSidesOfTheSocket(t *testing.T) {
	for _, class := range []error{ErrInvalid, ErrUnknownProvider, ErrDeleted, ErrNotReady, ErrConflict} {
		status, code := StatusOf(fmt.Errorf("provider %q: %w", "p", class))
		require.ErrorIs(t, &StatusError{Status: status, Body: ErrorBody{Error: code}}, class)
	}
	status, code := StatusOf(errors.New("a defect"))
	require.ErrorIs(t, &StatusError{Status: status, Body: ErrorBody{Error: code}}, ErrUnavailable)
	require.ErrorIs(t, ErrConflict, ErrInvalid)
}
