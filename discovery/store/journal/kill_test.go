package journal

import (
	"math/rand/v2"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/discovery/lease"
)

// promises is what clients received, and so may rely on.
type promises struct {
	*testing.T
	mu     sync.Mutex
	held   map[string]lease.Lease // granted, and no client requested their release
	cooled []lease.Lease          // banned for their target
	fences map[uint64]bool
	above  uint64 // all tokens that are given now are larger
	grants int
}

func (p *promises) granted(l lease.Lease) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.held[l.ID] = l
	p.grants++
	assert.False(p, p.fences[l.FencingToken], "token %d is given twice", l.FencingToken)
	assert.Greater(p, l.FencingToken, p.above, "a token from before the crash")
	p.fences[l.FencingToken] = true
	holders := 0
	for _, x := range p.held {
		if x.Proxy == l.Proxy {
			holders++
		}
	}
	assert.LessOrEqual(p, holders, childMaxLeases, "holders of %s", l.Proxy)
}

// dropping: from now on the lease may be gone.
func (p *promises) dropping(l lease.Lease) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.held, l.ID)
}

func (p *promises) banned(l lease.Lease) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.cooled = append(p.cooled, l)
}

// crawl is a client until the process is gone.
func (p *promises) crawl(proc *process, seed uint64) {
	rnd := rand.New(rand.NewPCG(seed, 0))
	c, err := proc.dial()
	if err != nil {
		return
	}
	defer c.conn.Close()
	for {
		l, ok := p.step(c, rnd)
		if !ok {
			return
		}
		if l.ID == "" || rnd.IntN(50) == 0 {
			continue // some leases stay for good
		}
		p.dropping(l)
		if a, err := c.ask(call{Op: "release", ID: l.ID}); err != nil || !assert.Empty(p, a.Error) {
			return
		}
	}
}

// step leases, renews and sometimes reports. ok is false when the process is
// gone.
func (p *promises) step(c *client, rnd *rand.Rand) (l lease.Lease, ok bool) {
	target := string([]byte{byte('a' + rnd.IntN(26)), byte('a' + rnd.IntN(26))})
	req := lease.Request{Target: target, TTL: 10 * time.Minute}
	if rnd.IntN(2) == 0 {
		req.Exclude = cold() // so that some are always full
	}
	a, err := c.ask(call{Op: "acquire", Request: req})
	if err != nil {
		return l, false
	}
	if a.NoMatch != nil {
		return l, true
	}
	if !assert.Empty(p, a.Error) {
		return l, false
	}
	l = a.Lease
	p.granted(l)
	if a, err = c.ask(call{Op: "renew", ID: l.ID, Request: lease.Request{TTL: time.Hour}}); err != nil || !assert.Empty(p, a.Error) {
		return l, false
	}
	if rnd.IntN(3) > 0 {
		return l, true
	}
	if a, err = c.ask(call{Op: "report", ID: l.ID, Report: lease.Report{Result: lease.ResultBanned}}); err != nil || !assert.Empty(p, a.Error) {
		return l, false
	}
	p.banned(l)
	return l, true
}

func (p *promises) count() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.grants
}

func (p *promises) waitForGrants(n int) {
	require.Eventually(p, func() bool { return p.count() >= n || p.Failed() }, time.Minute, time.Millisecond)
}

// kept checks that the process has everything that was promised.
func (p *promises) kept(proc *process) {
	c, err := proc.dial()
	require.NoError(p, err)
	defer c.conn.Close()
	ask := func(x call) answer {
		a, err := c.ask(x)
		require.NoError(p, err)
		return a
	}
	for id, want := range p.held {
		a := ask(call{Op: "get", ID: id})
		require.Empty(p, a.Error, "a granted lease is lost")
		assert.Equal(p, want.Instance, a.Lease.Instance)
		assert.False(p, a.Lease.ExpiresAt.Before(want.ExpiresAt), "a lease was shortened")
	}
	for _, n := range ask(call{Op: "usage"}).Active {
		assert.LessOrEqual(p, n, childMaxLeases)
	}
	rand.Shuffle(len(p.cooled), func(i, j int) { p.cooled[i], p.cooled[j] = p.cooled[j], p.cooled[i] })
	for _, l := range p.cooled[:min(len(p.cooled), 100)] {
		a := ask(call{Op: "acquire", Request: lease.Request{Target: l.Target, TTL: time.Second, Exclude: allBut(l.Proxy)}})
		require.NotNil(p, a.NoMatch, "a cooldown is lost")
		assert.Equal(p, 1, a.NoMatch.InCooldown)
	}
}

func allBut(proxy string) (out []string) {
	for _, o := range offers(childProxies, 1) {
		if o.Proxy != proxy {
			out = append(out, o.Proxy)
		}
	}
	return out
}

// cold is all proxies but a few.
func cold() (out []string) {
	for _, o := range offers(childProxies, 1)[8:] {
		out = append(out, o.Proxy)
	}
	return out
}

// TestKilledProcessLosesNoPromise kills a real process at random moments under 64 clients.
func TestKilledProcessLosesNoPromise(t *testing.T) {
	path := filepath.Join(t.TempDir(), "leases")
	p := &promises{T: t, held: map[string]lease.Lease{}, fences: map[uint64]bool{}}
	const rounds = 5
	for round := range rounds {
		proc := startChild(t, path)
		p.kept(proc)
		for f := range p.fences {
			p.above = max(p.above, f)
		}
		var wg sync.WaitGroup
		for i := range 64 {
			wg.Go(func() { p.crawl(proc, uint64(round*64+i)) })
		}
		p.waitForGrants(p.count() + 100 + rand.IntN(200))
		time.Sleep(time.Duration(rand.IntN(5000)) * time.Microsecond) // at any moment of a commit
		proc.kill()
		wg.Wait()
		require.False(t, t.Failed())
	}
	proc := startChild(t, path)
	p.kept(proc)
	t.Logf("%d grants, %d held, %d cooldowns, over %d kills", p.grants, len(p.held), len(p.cooled), rounds)
	assert.Greater(t, p.grants, 100)
	assert.NotEmpty(t, p.held)
	assert.NotEmpty(t, p.cooled)
}
