package engine

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/api/adapter"
	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/cloud/gcestandin"
	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/cloud/provider"
)

// Row D7: reads per object exhaust a project's quota. A thousand Proxies at rest
// cost at most twenty calls a minute.
func TestD7ThousandProxiesAtRestCostTwentyCallsAMinute(t *testing.T) {
	const proxies, minutes = 1000, 3
	b := newBench(t, benchConfig{})
	ps := make([]*px, proxies)
	b.drive()
	for i := range ps {
		ps[i] = b.proxy(i)
		ps[i].put()
	}
	b.pass(15 * time.Second)
	require.Len(t, b.gce.VMs(), proxies)

	b.gce.ForgetCalls()
	for range minutes {
		for _, p := range ps { // the hooks' drift poll
			require.Equal(t, adapter.StateRunning, p.put().State)
		}
		b.pass(time.Minute)
	}
	calls := b.gce.Calls()
	perMinute := float64(len(calls)) / minutes
	t.Logf("%.1f calls a minute for %d Proxies", perMinute, proxies)
	assert.LessOrEqual(t, perMinute, 20.0)
	for _, c := range calls {
		assert.Equal(t, "list", c.Op, "nothing is read one by one")
	}
}

func TestMutationsPassTheBucket(t *testing.T) {
	b := newBench(t, benchConfig{change: func(o *Options) {
		o.Bucket = provider.NewBucket(2, 5)
		o.Concurrency = 100
	}})
	b.drive()
	ps := make([]*px, 30)
	for i := range ps {
		ps[i] = b.proxy(i)
		ps[i].put()
	}
	b.drive()
	assert.Equal(t, 5, b.count("insert"), "the burst")
	b.pass(5 * time.Second)
	assert.Equal(t, 15, b.count("insert"))
	b.pass(time.Minute)
	assert.Equal(t, 30, b.count("insert"))

	for _, p := range ps {
		p.delete()
	}
	b.drive()
	assert.Equal(t, 5, b.count("delete"), "deletes pass the same bucket")
	b.pass(5 * time.Second)
	assert.Equal(t, 15, b.count("delete"))
}

// Deletions make room, so that they go first.
func TestDeletionsGoBeforeInserts(t *testing.T) {
	b := newBench(t, benchConfig{change: func(o *Options) { o.Bucket = provider.NewBucket(1, 4) }})
	b.drive()
	var old, fresh []*px
	for i := range 4 {
		old = append(old, b.proxy(i))
		old[i].put()
	}
	b.pass(30 * time.Second)
	require.Equal(t, 4, b.count("insert"))
	for i := range 4 {
		fresh = append(fresh, b.proxy(100+i))
		fresh[i].put()
		old[i].delete()
	}
	b.drive()
	assert.Equal(t, 4, b.count("delete"))
	assert.Equal(t, 4, b.count("insert"))
	for _, p := range fresh {
		p.running()
	}
}

func TestConcurrencyIsBounded(t *testing.T) {
	b := newBench(t, benchConfig{change: func(o *Options) { o.Concurrency = 3 }})
	b.drive()
	for i := range 10 {
		b.proxy(i).put()
	}
	jobs, _ := b.engine.accounts[0].step()
	assert.Len(t, jobs, 3)
	more, _ := b.engine.accounts[0].step()
	assert.Empty(t, more)
	for _, j := range jobs {
		b.engine.accounts[0].do(t.Context(), j)
	}
	b.drive()
	assert.Equal(t, 10, b.count("insert"))
}

func TestOperationsAreNotPolledInAHurry(t *testing.T) {
	b := newBench(t, benchConfig{timing: gcestandin.Timing{Insert: time.Minute}})
	b.drive()
	b.proxy(1).put()
	b.pass(time.Minute)
	assert.LessOrEqual(t, b.count("operation"), 7)
	assert.GreaterOrEqual(t, b.count("operation"), 4)
}
