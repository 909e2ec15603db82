package prober

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/api/v1alpha1"
	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/prober/probe"
)

// standby is a rig whose engine does not lead.
func standby(t *testing.T) *rig {
	t.Helper()
	r := newRig(t, 8)
	r.engine.leading = false
	return r
}

// seen is p as the watch shows it with another status.
func seen(p *v1alpha1.ProxyProbe, v v1alpha1.Verdict, version string) *v1alpha1.ProxyProbe {
	out := judged(p.Name, v)
	out.UID, out.ResourceVersion = p.UID, version
	return out
}

func TestAStandbyKnowsTheFleetAndProbesNothing(t *testing.T) {
	r := standby(t)
	fresh, old := proxyProbeOf("fresh"), judged("old", healthy)
	require.NoError(t, r.engine.Replace([]any{fresh, old}, "1"))
	for range 100 {
		r.none()
		r.step(time.Second)
	}
	require.NoError(t, r.engine.alive(), "it could take over")
	assert.False(t, r.engine.leads())

	r.engine.takeOver()
	assert.True(t, r.engine.leads())
	assert.Equal(t, "fresh", r.one().key.Name, "what has no verdict is due at once")
	r.step(5 * time.Second) // the old one was due at 15 s, 45 s, ...
	assert.Equal(t, "old", r.one().key.Name, "what was missed is not made up for")
	assert.Equal(t, healthy, r.verdict(old))
}

func TestAStandbyFollowsTheLeadersVerdicts(t *testing.T) {
	r, p := standby(t), proxyProbeOf("a")
	require.NoError(t, r.engine.Add(p))
	assert.Empty(t, r.verdict(p))
	require.NoError(t, r.engine.Update(seen(p, healthy, "2")))
	require.NoError(t, r.engine.Update(seen(p, unhealthy, "3")))
	assert.Equal(t, unhealthy, r.verdict(p))

	r.engine.takeOver()
	r.nothingToWrite(p)
	r.step(30 * time.Second)
	r.engine.finish(r.one(), bad(probe.ReasonDialFailed))
	assert.Equal(t, unhealthy, r.verdict(p))
	r.nothingToWrite(p)
	r.step(30 * time.Second)
	r.engine.finish(r.one(), good(time.Millisecond))
	assert.Equal(t, healthy, r.verdict(p))
	assert.Equal(t, flip, r.write(p).occasion)
}

// The predecessor wrote a flip just before it went, and the watch brings it after
// we took over. Ours would otherwise never be written again.
func TestAVerdictThatWasWrittenBeforeWeTookOver(t *testing.T) {
	r := newRig(t, 8)
	p := judged("a", healthy)
	p.ResourceVersion = "1"
	require.NoError(t, r.engine.Add(p))
	r.step(15 * time.Second)
	r.round(bad(probe.ReasonDialFailed))
	require.NoError(t, r.engine.Update(seen(p, unhealthy, "2")))
	assert.Equal(t, unhealthy, r.verdict(p))
	r.nothingToWrite(p)
	r.round(good(time.Millisecond))
	assert.Equal(t, healthy, r.verdict(p))
	assert.Equal(t, flip, r.write(p).occasion)
}

func TestTheWatchShowsOurOwnWritesEarlyAndLate(t *testing.T) {
	r := newRig(t, 8)
	p := judged("a", healthy)
	p.ResourceVersion = "1"
	require.NoError(t, r.engine.Add(p))
	r.step(15 * time.Second)
	for range 3 {
		r.round(bad(probe.ReasonDialFailed))
	}
	rep, ok := r.engine.report(keyOf(p))
	require.True(t, ok)
	require.NoError(t, r.engine.Update(seen(p, unhealthy, "3")), "before the answer to the write")
	r.engine.written(rep, "3")
	assert.Equal(t, unhealthy, r.verdict(p))
	r.nothingToWrite(p)

	require.NoError(t, r.engine.Update(seen(p, healthy, "2")), "an event from before")
	assert.Equal(t, unhealthy, r.verdict(p))
	r.nothingToWrite(p)

	require.NoError(t, r.engine.Update(seen(p, healthy, "4")), "another process")
	assert.Equal(t, healthy, r.verdict(p))
	r.engine.written(rep, "3")
	assert.Equal(t, healthy, r.engine.reportedVerdict(p), "an answer that took long")
}

func TestAStatusThatIsGoneIsWrittenAgain(t *testing.T) {
	r := newRig(t, 8)
	p := judged("a", healthy)
	require.NoError(t, r.engine.Add(p))
	require.NoError(t, r.engine.Update(proxyProbeOf("a")))
	assert.Equal(t, healthy, r.verdict(p))
	r.step(15 * time.Second)
	r.engine.finish(r.one(), good(time.Millisecond))
	assert.Equal(t, firstVerdict, r.write(p).occasion)
}

func TestAnEditWhileAVerdictIsUnwrittenDoesNotLoseIt(t *testing.T) {
	r := newRig(t, 8)
	p := judged("a", healthy)
	require.NoError(t, r.engine.Add(p))
	r.step(15 * time.Second)
	for range 3 {
		r.round(bad(probe.ReasonDialFailed))
	}
	require.NoError(t, r.engine.Update(seen(p, healthy, "2")), "what the API server still has")
	assert.Equal(t, unhealthy, r.verdict(p))
	assert.Equal(t, flip, r.write(p).occasion)
}

func TestStandingDownStopsAtOnce(t *testing.T) {
	r := newRig(t, 8)
	a, b := judged("a", healthy), proxyProbeOf("b")
	require.NoError(t, r.engine.Add(a))
	r.step(15 * time.Second)
	for range 3 {
		r.round(bad(probe.ReasonDialFailed))
	}
	require.NoError(t, r.engine.Add(b))
	jobs := r.handed()
	require.Len(t, jobs, 2)
	r.engine.standDown()
	for _, j := range jobs {
		require.Error(t, j.ctx.Err(), "cut off")
		r.engine.finish(j, unsure(probe.ReasonCanceled))
	}
	r.step(time.Minute)
	r.none()
	r.nothingToWrite(a)
	assert.Equal(t, healthy, r.verdict(a), "what is not written counts for nothing")
	assert.Empty(t, r.verdict(b))
	r.engine.standDown()
	assert.Zero(t, r.engine.due.busy)
}

// An API server that is away keeps nobody from probing, for a while.
func TestALeaderWithoutALeaseGoesOnForAWhile(t *testing.T) {
	r := newRig(t, 8)
	p := judged("a", healthy)
	require.NoError(t, r.engine.Add(p))
	r.step(15 * time.Second)
	r.engine.goOn(time.Minute)
	for range 2 {
		r.round(bad(probe.ReasonDialFailed))
	}
	r.engine.takeOver() // the API server is back
	r.round(bad(probe.ReasonDialFailed))
	assert.Equal(t, unhealthy, r.verdict(p), "the run went on all the while")
	assert.Equal(t, 1, r.pending[keyOf(p)])
	r.engine.takeOver()
	assert.Equal(t, 2, r.pending[keyOf(p)], "asked for again when the lease is")
	r.write(p)

	r.engine.goOn(time.Minute)
	r.step(time.Minute + time.Second)
	r.none()
	assert.False(t, r.engine.leads())
}
