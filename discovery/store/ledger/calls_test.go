package ledger

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/discovery/lease"
)

// recorder is a Do that notes which calls are durable, and fails after each call when
// fail is set, as a store does that cannot persist.
type recorder struct {
	g       *Ledger
	durable []bool
	fail    error
}

func (r *recorder) do(_ context.Context, durable bool, call func(g *Ledger, now time.Time) error) error {
	r.durable = append(r.durable, durable)
	if err := call(r.g, start); err != nil {
		return err
	}
	return r.fail
}

func isClosed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

func TestCallsThatChangeTheStateAreDurable(t *testing.T) {
	g, _ := small(2)
	r := &recorder{g: g}
	c, ctx := NewCalls(r.do), t.Context()
	l, err := c.Acquire(ctx, lease.Request{TTL: time.Minute, Target: "a"})
	require.NoError(t, err)
	renewed, err := c.Renew(ctx, l.ID, time.Hour)
	require.NoError(t, err)
	assert.Equal(t, start.Add(time.Hour), renewed.ExpiresAt)
	require.NoError(t, c.Report(ctx, l.ID, lease.Report{Result: lease.ResultBanned}))
	require.NoError(t, c.Release(ctx, l.ID))
	ended, err := c.EndCooldowns(ctx, l.Instance.ProxyUID, "")
	require.NoError(t, err)
	assert.Equal(t, 1, ended)
	assert.Equal(t, []bool{true, true, true, true, true}, r.durable)

	r.durable = nil
	l, err = c.Acquire(ctx, lease.Request{TTL: time.Minute})
	require.NoError(t, err)
	got, err := c.Get(ctx, l.ID)
	require.NoError(t, err)
	assert.Equal(t, l, got)
	u, err := c.Usage(ctx)
	require.NoError(t, err)
	assert.Equal(t, 1, u.Total())
	page, err := c.List(ctx, lease.Query{Limit: 9})
	require.NoError(t, err)
	assert.Len(t, page.Leases, 1)
	cooldowns, err := c.Cooldowns(ctx, l.Instance.ProxyUID)
	require.NoError(t, err)
	assert.Empty(t, cooldowns)
	assert.Equal(t, []bool{true, false, false, false, false}, r.durable)
}

// The ledger has the change and the store could not persist it.
func TestRenewReturnsNoLeaseThatIsNotDurable(t *testing.T) {
	g, _ := small(1)
	r := &recorder{g: g}
	c := NewCalls(r.do)
	l, err := c.Acquire(t.Context(), lease.Request{TTL: time.Minute})
	require.NoError(t, err)
	r.fail = errors.New("disk full")
	renewed, err := c.Renew(t.Context(), l.ID, time.Hour)
	require.ErrorIs(t, err, r.fail)
	assert.Empty(t, renewed)
	lost, err := c.Acquire(t.Context(), lease.Request{TTL: time.Minute})
	require.ErrorIs(t, err, r.fail)
	assert.NotEmpty(t, lost.ID, "the store releases it by its id")
}

func TestSignalsAreClosedByWhatFreesAndWhatChanges(t *testing.T) {
	g, _ := small(1)
	c := NewCalls((&recorder{g: g}).do)
	c.NotifyChanged(g)
	l, err := c.Acquire(t.Context(), lease.Request{TTL: time.Minute})
	require.NoError(t, err)
	changed := c.Changed()
	c.NotifyChanged(g)
	assert.True(t, isClosed(changed))
	changed = c.Changed()
	c.NotifyChanged(g)
	assert.False(t, isClosed(changed), "nothing has changed since")

	freed := c.Freed()
	_, err = c.Renew(t.Context(), l.ID, time.Hour)
	require.NoError(t, err)
	require.NoError(t, c.Report(t.Context(), l.ID, lease.Report{Result: lease.ResultBanned, Target: "a"}))
	assert.False(t, isClosed(freed))
	require.NoError(t, c.Release(t.Context(), l.ID))
	assert.True(t, isClosed(freed))
	freed = c.Freed()
	_, err = c.EndCooldowns(t.Context(), l.Instance.ProxyUID, "a")
	require.NoError(t, err)
	assert.True(t, isClosed(freed))
}
