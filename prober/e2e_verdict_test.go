package prober

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/api/v1alpha1"
	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/prober/probetest"
)

func TestVerdictsReachTheAPIServer(t *testing.T) {
	c, s := newCluster(t), newScene(t, "flips")
	c.start(s)
	created := time.Now().Truncate(time.Second)
	c.create(s.swift())

	st := c.becomes("flips", healthy, "ProbeSucceeded")
	assert.Equal(t, "instance-1", st.InstanceID)
	assert.Equal(t, "target.invalid answered 204 through the proxy", st.Message)
	assert.NotNil(t, st.LatencyMillis)
	assert.Equal(t, int64(1), st.ObservedGeneration)
	assert.False(t, st.LastProbeTime.Time.Before(created))
	assert.False(t, st.LastTransitionTime.Time.Before(created))

	s.proxy.Set(probetest.Hang)
	st = c.becomes("flips", unhealthy, "ConnectTimeout")
	assert.GreaterOrEqual(t, *st.LatencyMillis, waited.Milliseconds()-1, "the timeout")
	s.proxy.Set(refuse())
	s.proxy.Set(s.works)
	c.becomes("flips", healthy, "ProbeSucceeded")
}

func TestStatusIsNotWrittenWithoutNeed(t *testing.T) {
	c, s := newCluster(t), newScene(t, "steady")
	c.start(s)
	c.create(s.swift())
	c.becomes("steady", healthy, "ProbeSucceeded")
	version, seen := c.get("steady").ResourceVersion, s.proxy.Seen()
	eventually(t, func() bool { return s.proxy.Seen() >= seen+3 }, "probed on")
	assert.Equal(t, version, c.get("steady").ResourceVersion)
}

func TestARestartKeepsTheVerdict(t *testing.T) {
	c, s := newCluster(t), newScene(t, "kept")
	first := c.start(s)
	c.create(s.swift())
	c.becomes("kept", healthy, "ProbeSucceeded")
	first.stop()
	version := c.get("kept").ResourceVersion
	s.proxy.Alternate(refuse(), s.works)

	seen := s.proxy.Seen()
	c.start(s)
	eventually(t, func() bool { return s.proxy.Seen() >= seen+3 }, "probed on after one failure")
	assert.Equal(t, version, c.get("kept").ResourceVersion, "one failure is not a run")
	s.proxy.Set(refuse())
	c.becomes("kept", unhealthy, "ConnectRefused")
}

// A proxy that fails while the API server is away: nothing flaps, and the verdict
// arrives when it is back, without waiting for the next probe.
func TestAnOutageOfTheAPIServerLosesNoVerdict(t *testing.T) {
	c, s := newCluster(t), newScene(t, "outage")
	p := c.start(s)
	c.create(s.swift())
	c.becomes("outage", healthy, "ProbeSucceeded")
	version := c.get("outage").ResourceVersion

	c.line.cut()
	seen := s.proxy.Seen()
	eventually(t, func() bool { return s.proxy.Seen() >= seen+2 }, "probed on")
	s.proxy.Set(refuse())
	eventually(t, func() bool { return p.engine.verdicts()[unhealthy] == 1 }, "known")
	assert.Equal(t, version, c.get("outage").ResourceVersion)
	c.line.mend()
	c.becomes("outage", unhealthy, "ConnectRefused")
}

func TestANamesakeNeverGetsItsPredecessorsVerdict(t *testing.T) {
	c, s := newCluster(t), newScene(t, "namesake")
	first := c.create(s.swift())
	client, err := NewClient(c.config)
	require.NoError(t, err)
	patch := func(key types.NamespacedName, uid types.UID, st v1alpha1.ProxyProbeStatus) error {
		_, err := client.PatchStatus(t.Context(), key, uid, st)
		return err
	}
	key := types.NamespacedName{Namespace: "default", Name: "namesake"}
	st := v1alpha1.ProxyProbeStatus{InstanceID: "instance-1", Verdict: unhealthy, Reason: "DialFailed"}
	require.NoError(t, patch(key, first.UID, st))
	assert.Equal(t, st, c.get("namesake").Status)
	st.Verdict = healthy
	require.NoError(t, patch(key, first.UID, st), "over an older status")
	assert.Equal(t, healthy, c.get("namesake").Status.Verdict)

	require.NoError(t, c.objects.Delete(t.Context(), "namesake", metav1.DeleteOptions{}))
	require.Error(t, patch(key, first.UID, st), "gone")
	second := c.create(s.swift())
	require.Error(t, patch(key, first.UID, st), "another object")
	assert.Empty(t, c.get("namesake").Status)
	assert.Equal(t, second.ResourceVersion, c.get("namesake").ResourceVersion)

	st.Verdict = "Perhaps"
	require.ErrorContains(t, patch(key, second.UID, st), "Perhaps", "the schema holds")
}
