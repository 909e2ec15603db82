package health

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/api/v1alpha1"
	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/prober/probe"
)

// course is a proxy whose status is written whenever it has to be.
type course struct {
	Proxy
	now     time.Time
	every   time.Duration
	written []string // reasons and messages
	why     []WriteReason
	at      []time.Time
}

func newCourse() *course { return &course{now: epoch(), every: 30 * time.Second} }

// probe ends a probe with a reason and a message, and advances to the next one.
func (c *course) probe(reason probe.Reason, message string) {
	last := LastProbe{Reason: reason, Message: message, Start: c.now}
	switch reason {
	case probe.ReasonResolverFailed, probe.ReasonCredentialsUnavailable:
		c.CountInconclusive(last, InconclusiveLimit, c.now)
	default:
		c.Started(c.now)
		if c.Count(reason == probe.ReasonProbeSucceeded, last, thresholds(3, 1), c.now) {
			c.MarkUnhealthy(c.now)
		}
	}
	c.write()
	c.now = c.now.Add(c.every)
}

func (c *course) write() {
	why := c.WriteReason(c.now)
	if why == NoWrite {
		return
	}
	st := c.Status("instance-1")
	c.Wrote(&st, c.Proxy.Written(why), "", c.now)
	c.written, c.why, c.at = append(c.written, st.Reason+" "+st.Message), append(c.why, why), append(c.at, c.now)
}

// unhealthyBy is a course that turned Unhealthy.
func unhealthyBy(t *testing.T, reason probe.Reason, message string) *course {
	t.Helper()
	c := newCourse()
	for range 4 {
		c.probe(reason, message)
	}
	require.Equal(t, unhealthy, c.Verdict)
	require.Len(t, c.written, 1)
	return c
}

// The Secret gets its label, and the proxy refuses the password: one more write, within
// a minute, and none at rest.
func TestReasonThatChangedForGoodIsWrittenOnce(t *testing.T) {
	for _, every := range []time.Duration{time.Second, 5 * time.Second, 30 * time.Second} {
		c := unhealthyBy(t, probe.ReasonCredentialsRefused, "setup: the Secret has no label")
		c.every = every
		changed := c.now
		for range 200 {
			c.probe(probe.ReasonProxyAuthRefused, "connect: the proxy answered 407")
		}
		require.Len(t, c.written, 2, every)
		assert.Equal(t, "ProxyAuthRefused connect: the proxy answered 407", c.written[1])
		assert.Equal(t, ReasonChange, c.why[1])
		assert.LessOrEqual(t, c.at[1].Sub(changed), time.Minute, every)
		assert.Equal(t, unhealthy, c.Verdict)
	}
}

// The reason stays and what it is about changes.
func TestMessageThatChangedForGoodIsWrittenOnce(t *testing.T) {
	c := unhealthyBy(t, probe.ReasonCredentialsRefused, "setup: the Secret has no label")
	for range 50 {
		c.probe(probe.ReasonCredentialsRefused, "setup: the password ends with a newline")
	}
	require.Len(t, c.written, 2)
	assert.Equal(t, "CredentialsRefused setup: the password ends with a newline", c.written[1])
}

// Two changes within minutes are both written, each within a minute.
func TestSecondChangeOfReasonIsWrittenWithinAMinute(t *testing.T) {
	c := unhealthyBy(t, probe.ReasonCredentialsRefused, "a")
	c.every = 10 * time.Second
	for _, message := range []string{"b", "c"} {
		changed := c.now
		for range 9 {
			c.probe(probe.ReasonCredentialsRefused, message)
		}
		assert.Equal(t, "CredentialsRefused "+message, c.written[len(c.written)-1])
		assert.LessOrEqual(t, c.at[len(c.at)-1].Sub(changed), time.Minute)
	}
	assert.Len(t, c.written, 3)
}

// Reasons that alternate cause few writes, whatever their period is.
func TestAlternatingReasonsCauseFewWrites(t *testing.T) {
	for period := 1; period <= 8; period++ {
		c := unhealthyBy(t, probe.ReasonConnectFailed, "reset")
		const probes = 24 * 120 // a day
		for i := range probes {
			if i/period%2 == 0 {
				c.probe(probe.ReasonConnectTimeout, "timeout")
			} else {
				c.probe(probe.ReasonConnectFailed, "reset")
			}
		}
		assert.LessOrEqual(t, len(c.written), 10, "period %d", period)
	}
}

// A message that differs each time, such as that of probe URLs that take turns, is not
// written.
func TestMessagesThatDifferEachTimeAreNotWritten(t *testing.T) {
	c := newCourse()
	for i := range 200 {
		c.probe(probe.ReasonProbeSucceeded, fmt.Sprintf("site-%d answered 204 through the proxy", i%2))
	}
	assert.Len(t, c.written, 1)
}

// The reason changes for good while the messages go on to differ: probe URLs take turns,
// or a proxy adds a header with a random name. The reason is written once.
func TestReasonThatChangedIsWrittenAlthoughMessagesDiffer(t *testing.T) {
	for _, every := range []time.Duration{time.Second, 30 * time.Second} {
		c := unhealthyBy(t, probe.ReasonDialTimeout, "dial: no complete response")
		c.every = every
		changed := c.now
		c.probe(probe.ReasonUnexpectedStatus, "http: site-0 answered 500")
		assert.True(t, c.Unconfirmed())
		for i := range 200 {
			c.probe(probe.ReasonUnexpectedStatus, fmt.Sprintf("http: site-%d answered 500", 1+i))
		}
		require.Len(t, c.written, 2, every)
		assert.Contains(t, c.written[1], "UnexpectedStatus http: site-")
		assert.LessOrEqual(t, c.at[1].Sub(changed), time.Minute, every)

		c.probe(probe.ReasonDialTimeout, "dial: no complete response")
		assert.True(t, c.Unconfirmed(), "the next change is confirmed soon, too")
		c.probe(probe.ReasonDialTimeout, "dial: no complete response")
		assert.Contains(t, c.written[len(c.written)-1], "DialTimeout")
	}
}

// An Unknown verdict shows why the proxy cannot be probed today.
func TestReasonOfUnknownIsTodays(t *testing.T) {
	c := newCourse()
	for range 5 {
		c.probe(probe.ReasonCredentialsUnavailable, "setup: no API server")
	}
	require.Equal(t, unknown, c.Verdict)
	require.Len(t, c.written, 1)
	for range 50 {
		c.probe(probe.ReasonResolverFailed, "dial: the name server failed")
	}
	require.Len(t, c.written, 2)
	assert.Equal(t, "ResolverFailed dial: the name server failed", c.written[1])
}

// A restarted prober corrects what became untrue meanwhile, and writes nothing else.
func TestReasonAfterARestart(t *testing.T) {
	for _, tc := range []struct {
		verdict       v1alpha1.Verdict
		was           string
		is            probe.Reason
		message       string
		want          int
		statusMessage string
	}{
		{verdict: unhealthy, was: "DialFailed", statusMessage: "refused", is: probe.ReasonDialFailed, message: "refused"},
		{verdict: unhealthy, was: "CredentialsRefused", statusMessage: "no label", is: probe.ReasonCredentialsRefused, message: "newline", want: 1},
		{verdict: unhealthy, was: "CredentialsRefused", statusMessage: "no label", is: probe.ReasonProxyAuthRefused, message: "407", want: 1},
		{verdict: healthy, was: "ProbeSucceeded", is: probe.ReasonProbeSucceeded, message: "answered"},
	} {
		c, then := newCourse(), epoch().Add(-time.Hour)
		pp := &v1alpha1.ProxyProbe{Status: v1alpha1.ProxyProbeStatus{InstanceID: "instance-1", Verdict: tc.verdict, Reason: tc.was, Message: tc.statusMessage, LastProbeTime: apiTime(then)}}
		require.True(t, c.Seed(pp, "instance-1", c.now))
		for range 20 {
			c.probe(tc.is, tc.message)
		}
		assert.Len(t, c.written, tc.want, "%s, %s", tc.was, tc.message)
	}
}

// The first probe with another reason is confirmed soon, unless reasons alternate.
func TestUnconfirmedReason(t *testing.T) {
	c := unhealthyBy(t, probe.ReasonCredentialsRefused, "no label")
	assert.False(t, c.Unconfirmed())
	c.probe(probe.ReasonProxyAuthRefused, "407")
	assert.True(t, c.Unconfirmed())
	c.probe(probe.ReasonProxyAuthRefused, "407")
	assert.False(t, c.Unconfirmed())
	for range 5 {
		c.probe(probe.ReasonDialFailed, "refused")
		c.probe(probe.ReasonDialTimeout, "timeout")
	}
	assert.False(t, c.Unconfirmed())
}
