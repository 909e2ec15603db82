package journal

import (
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/discovery/lease"
)

// TestFullDisk has the kernel refuse writes beyond a limit, and then take them
// again.
func TestFullDisk(t *testing.T) {
	path := filepath.Join(t.TempDir(), "leases")
	p := startChild(t, path)
	first := p.must(call{Op: "acquire", Request: lease.Request{TTL: time.Hour}}).Lease
	require.NotEmpty(t, first.ID)
	require.Empty(t, p.must(call{Op: "limit", Limit: 40_000}).Error)

	var refused answer
	for i := range 500 {
		a := p.must(call{Op: "acquire", Request: lease.Request{TTL: time.Hour, Session: strings.Repeat("s", 3_000+i)}})
		require.Nil(t, a.NoMatch)
		if a.Error != "" {
			refused = a
			break
		}
		require.Empty(t, p.must(call{Op: "release", ID: a.Lease.ID}).Error)
	}
	assert.True(t, refused.Unavailable, "%+v", refused)
	assert.Contains(t, refused.Error, "lease store unavailable: file resize error: truncate "+path)
	assert.Empty(t, refused.Lease)
	for _, op := range []string{"acquire", "renew", "release", "report", "usage", "ready", "get"} {
		a := p.must(call{Op: op, ID: first.ID, Request: lease.Request{TTL: time.Hour}, Report: lease.Report{Result: lease.ResultBanned}})
		assert.True(t, a.Unavailable, "%s: %+v", op, a)
	}

	require.Empty(t, p.must(call{Op: "limit", Limit: 1 << 30}).Error)
	require.Eventually(t, func() bool { return p.must(call{Op: "ready"}).Error == "" }, 10*time.Second, 10*time.Millisecond, "it recovers without hands")
	a := p.must(call{Op: "get", ID: first.ID})
	assert.Empty(t, a.Error)
	assert.True(t, a.Lease.ExpiresAt.After(first.ExpiresAt), "holders could not renew, so leases go on for longer")
	assert.Equal(t, []int{1}, p.must(call{Op: "usage"}).Active, "what was refused does not count")
	next := p.must(call{Op: "acquire", Request: lease.Request{TTL: time.Hour}})
	assert.Empty(t, next.Error)
	assert.Greater(t, next.Lease.FencingToken, first.FencingToken)

	p.kill()
	p = startChild(t, path)
	assert.Empty(t, p.must(call{Op: "get", ID: next.Lease.ID}).Error)
	assert.Len(t, p.must(call{Op: "usage"}).Active, 2)
}
