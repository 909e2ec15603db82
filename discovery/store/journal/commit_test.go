package journal

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/discovery/lease"
	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/discovery/store/journal/journaltest"
	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/internal/stores"
)

// TestWriteBeyondTheFileSizeLimit has the kernel refuse writes beyond a limit, and then take them
// again.
func TestWriteBeyondTheFileSizeLimit(t *testing.T) {
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
	// What is small has room in the file as it is, and the store would go on with that
	// within the second.
	require.Empty(t, p.must(call{Op: "limit", Limit: 1}).Error)
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

// fillUp leases, takes all space, and has the store write until there is none even in what
// it has already. It returns the leases that were granted, and what was answered to
// the one that was not.
func fillUp(t *testing.T, disk *stores.Disk, p *process) (held []lease.Lease, refused answer) {
	t.Helper()
	for i := range 2_000 {
		if i == 10 {
			require.NoError(t, disk.Fill())
		}
		a := p.must(call{Op: "acquire", Request: lease.Request{TTL: time.Hour, Session: strings.Repeat("s", 3_000+i%400)}})
		if a.Error != "" {
			return held, a
		}
		held = append(held, a.Lease)
	}
	require.Fail(t, "the disk is never full")
	return nil, answer{}
}

// TestDiskWithoutSpace uses a file system that is full: bbolt extends its file without
// an error, and cannot write there.
func TestDiskWithoutSpace(t *testing.T) {
	disk := journaltest.SmallDisk(t, 1<<20)
	path := filepath.Join(disk.Path(), "leases")
	p := startChild(t, path)
	held, refused := fillUp(t, disk, p)
	require.NotEmpty(t, held)
	assert.True(t, refused.Unavailable, "%+v", refused)
	assert.Contains(t, refused.Error, "no space left on device; free space on the disk of "+path+", the store retries by itself")
	assert.Empty(t, refused.Lease)
	for _, op := range []string{"acquire", "renew", "release", "report", "usage", "ready", "get"} {
		a := p.must(call{Op: op, ID: held[0].ID, Request: lease.Request{TTL: time.Hour}, Report: lease.Report{Result: lease.ResultBanned}})
		assert.True(t, a.Unavailable, "%s: %+v", op, a)
	}
	require.NoError(t, disk.Free())
	p.keeps(held)

	more, _ := fillUp(t, disk, p)
	held = append(held, more...)
	p.kill()
	p = startChild(t, path)
	a := p.must(call{Op: "ready"})
	assert.True(t, a.Unavailable, "it starts, and is not ready: %+v", a)
	assert.Contains(t, a.Error, "no space left on device; free space")
	a = p.must(call{Op: "acquire", Request: lease.Request{TTL: time.Hour}})
	assert.True(t, a.Unavailable, "%+v", a)
	p.kill()
	p = startChild(t, path) // failed commits damage nothing
	require.NoError(t, disk.Free())
	p.keeps(held)
}

// keeps waits until the process is ready, and wants it to know these leases and no
// others.
func (p *process) keeps(held []lease.Lease) {
	p.Helper()
	require.Eventually(p, func() bool { return p.must(call{Op: "ready"}).Error == "" }, 10*time.Second, 10*time.Millisecond, "it recovers without hands")
	for _, want := range held {
		a := p.must(call{Op: "get", ID: want.ID})
		require.Empty(p, a.Error, "a granted lease is lost")
		require.False(p, a.Lease.ExpiresAt.Before(want.ExpiresAt.Add(-time.Millisecond)), "a lease was shortened")
	}
	total := 0
	for _, n := range p.must(call{Op: "usage"}).Active {
		total += n
	}
	assert.Equal(p, len(held), total, "what was refused does not count")
}

// TestStartOnADiskWithoutSpace: there is no file yet, and no room for one.
func TestStartOnADiskWithoutSpace(t *testing.T) {
	disk := journaltest.SmallDisk(t, 1<<20)
	require.NoError(t, disk.Fill())
	path := filepath.Join(disk.Path(), "leases")
	p := startChild(t, path)
	a := p.must(call{Op: "ready"})
	assert.True(t, a.Unavailable)
	assert.Contains(t, a.Error, "lease store unavailable: create "+path+": ")
	assert.Contains(t, a.Error, "no space left on device; free space on the disk of "+path+", the store retries by itself")
	entries, err := os.ReadDir(disk.Path())
	require.NoError(t, err)
	assert.LessOrEqual(t, len(entries), 2, "nothing piles up: %v", entries)
	require.NoError(t, disk.Free())
	p.keeps(nil)
	assert.Empty(t, p.must(call{Op: "acquire", Request: lease.Request{TTL: time.Hour}}).Error)
}
