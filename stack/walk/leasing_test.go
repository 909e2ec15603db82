package walk

import (
	"net/http"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestLookRecordsLeasableAddresses(t *testing.T) {
	list := func(leasable string) string {
		return `{"proxies":[{"name":"paris"},{"name":"berlin","host":"127.1.1.2","port":3128,"leasable":` + leasable + `}]}`
	}
	l := &leasing{}
	l.look(t.Context(), answering(t, http.StatusOK, list("false")), berlin)
	assert.Empty(t, l.seen.list, "not offered")
	l.look(t.Context(), answering(t, http.StatusOK, list("true")), berlin)
	require.Len(t, l.seen.list, 1)
	assert.Equal(t, "127.1.1.2", l.seen.list[0].host)
	assert.Equal(t, 3128, l.seen.list[0].port)
	require.NoError(t, l.seen.err)

	l.look(t.Context(), answering(t, http.StatusOK, `{"proxies":[]}`), berlin)
	assert.ErrorContains(t, l.seen.err, "does not list berlin")
}
