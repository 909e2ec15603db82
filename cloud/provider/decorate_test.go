package provider

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	clocktesting "k8s.io/utils/clock/testing"
)

type recorded []string

func (r *recorded) Request(provider, op, result string, took time.Duration) {
	*r = append(*r, fmt.Sprintf("%s %s %s %s", provider, op, result, took))
}

func TestWithMetricsRecordsEveryCall(t *testing.T) {
	clk := clocktesting.NewFakePassiveClock(time.Unix(0, 0))
	var got recorded
	fake := &fakeCloud{err: &Error{Class: ErrRateLimited, Err: errors.New("slow down")}}
	errs := callAll(WithMetrics("gcp-eu", fake, got.Request, clk))
	for op, err := range errs {
		assert.ErrorIs(t, err, ErrRateLimited, op)
	}
	assert.Equal(t, recorded{
		"gcp-eu insert rate_limited 0s", "gcp-eu get rate_limited 0s", "gcp-eu delete rate_limited 0s",
		"gcp-eu operation rate_limited 0s", "gcp-eu list rate_limited 0s",
	}, got)

	got = nil
	callAll(WithMetrics("p", &fakeCloud{}, got.Request, clk))
	assert.Equal(t, "p insert ok 0s", got[0])
}

type fixedGuard struct {
	until time.Time
	err   error
}

func (g fixedGuard) Writer() (time.Time, error) { return g.until, g.err }

func TestWithGuardStopsMutationsOnly(t *testing.T) {
	fake := &fakeCloud{}
	why := errors.New("the lease ran out")
	errs := callAll(WithGuard(fake, fixedGuard{err: why}))
	assert.Equal(t, []string{"get", "operation", "list"}, fake.calls)
	for _, op := range []string{"insert", "delete"} {
		assert.ErrorIs(t, errs[op], ErrNotWriter)
		assert.ErrorIs(t, errs[op], why)
	}
}

func TestWithGuardCancelsMutationsAtTheEndOfTheLease(t *testing.T) {
	fake := &fakeCloud{}
	until := time.Now().Add(time.Hour)
	c := WithGuard(fake, fixedGuard{until: until})
	_, _ = c.Insert(t.Context(), InsertRequest{})
	assert.Equal(t, until, fake.deadline)
	_, _ = c.Delete(t.Context(), Ref{}, "")
	assert.Equal(t, until, fake.deadline)
	_, _ = c.Get(t.Context(), Ref{})
	assert.Zero(t, fake.deadline)

	_, _ = WithGuard(fake, fixedGuard{}).Insert(t.Context(), InsertRequest{})
	assert.Zero(t, fake.deadline, "without a lease nothing runs out")
}

func TestBucketAllowsABurstThenThrottles(t *testing.T) {
	now := time.Unix(1000, 0)
	b := NewBucket(2, 3)
	for range 3 {
		assert.Zero(t, b.Take(now))
	}
	assert.Equal(t, 500*time.Millisecond, b.Take(now))
	assert.Equal(t, 500*time.Millisecond, b.Take(now), "a refusal takes no token")
	now = now.Add(500 * time.Millisecond)
	assert.Zero(t, b.Take(now))
	assert.NotZero(t, b.Take(now))
}
