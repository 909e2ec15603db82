package walk

import (
	"net/http"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

const grant = `{"leaseID":"a","proxy":{"name":"berlin"},"proxyURL":"http://127.0.0.1:1","ttlSeconds":120}`

func TestGrantedFailsOnRefusal(t *testing.T) {
	l, err := answering(t, http.StatusCreated, grant).granted(t.Context(), want(nil, ""))
	require.NoError(t, err)
	assert.Equal(t, "berlin", l.Proxy.Name)
	require.NoError(t, l.Release(t.Context()))
	_, err = answering(t, http.StatusConflict, `{"error":"no_match","message":"2 in cooldown"}`).granted(t.Context(), want(nil, ""))
	assert.ErrorContains(t, err, "no_match: 2 in cooldown")
}

func TestRefusedFailsOnGrantAndOnOtherErrors(t *testing.T) {
	r, err := answering(t, http.StatusConflict, `{"error":"no_match","inCooldown":2}`).refused(t.Context(), want(nil, ""))
	require.NoError(t, err)
	assert.Equal(t, 2, r.Counts.InCooldown)
	_, err = answering(t, http.StatusCreated, grant).refused(t.Context(), want(nil, ""))
	assert.ErrorContains(t, err, "granted on berlin, want a refusal")
	_, err = answering(t, http.StatusInternalServerError, `oops`).refused(t.Context(), want(nil, ""))
	assert.ErrorContains(t, err, "500")
}

func TestReleaseAgainRequires204(t *testing.T) {
	assert.NoError(t, answering(t, http.StatusNoContent, "").releaseAgain(t.Context(), "a"))
	assert.ErrorContains(t, answering(t, http.StatusNotFound, "gone").releaseAgain(t.Context(), "a"), "404 Not Found, want 204")
}
