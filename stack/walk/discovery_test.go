package walk

import (
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// answering is a discovery API that gives one answer to everything.
func answering(t *testing.T, status int, body string) *discoveryClient {
	t.Helper()
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		assert.Equal(t, "Bearer secret", r.Header.Get("Authorization"))
		w.WriteHeader(status)
		_, _ = io.WriteString(w, body)
	}))
	t.Cleanup(srv.Close)
	return newDiscoveryClient(srv.URL, "secret")
}

func TestLeaseTellsGrantFromRefusalFromFailure(t *testing.T) {
	ctx := context.Background()
	g, r, err := answering(t, http.StatusCreated, `{"leaseID":"a","proxy":{"name":"berlin"}}`).lease(ctx, leaseRequest{})
	require.NoError(t, err)
	assert.Equal(t, "berlin", g.Proxy.Name)
	assert.Nil(t, r)

	g, r, err = answering(t, http.StatusConflict, `{"error":"no_match","inCooldown":2}`).lease(ctx, leaseRequest{})
	require.NoError(t, err)
	assert.Nil(t, g)
	assert.Equal(t, 2, r.InCooldown)

	_, _, err = answering(t, http.StatusInternalServerError, `oops`).lease(ctx, leaseRequest{})
	assert.ErrorContains(t, err, "answered 500: oops")
}

func TestGrantedAndRefusedInsist(t *testing.T) {
	ctx := context.Background()
	_, err := answering(t, http.StatusConflict, `{"message":"2 cooling"}`).granted(ctx, leaseRequest{})
	assert.ErrorContains(t, err, "refused: 2 cooling")
	_, err = answering(t, http.StatusCreated, `{"proxy":{"name":"berlin"}}`).refused(ctx, leaseRequest{})
	assert.ErrorContains(t, err, "granted on berlin, want a refusal")
}

func TestReleaseInsistsOn204(t *testing.T) {
	assert.NoError(t, answering(t, http.StatusNoContent, "").release(context.Background(), "a"))
	assert.ErrorContains(t, answering(t, http.StatusNotFound, "gone").release(context.Background(), "a"), "answered 404, want 204: gone")
}
