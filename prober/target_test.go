package prober

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/api/v1alpha1"
	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/prober/probe"
)

func TestAnotherInstanceStartsAfresh(t *testing.T) {
	for name, change := range map[string]func(*v1alpha1.ProxyProbeSpec){
		"instanceID": func(s *v1alpha1.ProxyProbeSpec) { s.InstanceID = "instance-2" },
		"host":       func(s *v1alpha1.ProxyProbeSpec) { s.Host = "192.0.2.2" },
		"port":       func(s *v1alpha1.ProxyProbeSpec) { s.Port = 3129 },
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, 8)
			p := proxyProbeOf("a")
			require.NoError(t, r.engine.Add(p))
			r.round(good(time.Millisecond))
			r.write(p)
			r.round(bad(probe.ReasonDialFailed))
			r.round(bad(probe.ReasonDialFailed))
			r.step(-20 * time.Second) // nothing is due

			moved := p.DeepCopy()
			moved.Generation++
			change(&moved.Spec)
			require.NoError(t, r.engine.Update(moved))
			assert.Empty(t, r.verdict(p), "unknown again")
			r.nothingToWrite(p)
			r.engine.finish(r.one(), bad(probe.ReasonDialFailed))
			assert.Empty(t, r.verdict(p), "the failures of the old instance do not count")
			r.nothingToWrite(p)
		})
	}
}

func TestAnInstanceThatChangesUnderAProbe(t *testing.T) {
	r := newRig(t, 8)
	p := proxyProbeOf("a")
	require.NoError(t, r.engine.Add(p))
	old := r.one()

	moved := p.DeepCopy()
	moved.Spec.InstanceID = "instance-2"
	require.NoError(t, r.engine.Update(moved))
	require.Error(t, old.ctx.Err(), "cut off")
	r.none() // never two probes of one proxy
	r.engine.finish(old, good(time.Millisecond))
	assert.Empty(t, r.verdict(p), "the result is about the old instance")

	j := r.one()
	assert.Equal(t, "instance-2", j.order.instanceID)
	r.engine.finish(j, good(time.Millisecond))
	assert.Equal(t, "instance-2", r.write(p).status.InstanceID)
}

func TestAnEditedHealthCheckKeepsVerdictAndCounters(t *testing.T) {
	r := newRig(t, 8)
	p := judged("a", healthy)
	require.NoError(t, r.engine.Add(p))
	r.step(time.Minute)
	r.round(bad(probe.ReasonDialFailed))

	edited := p.DeepCopy()
	edited.Generation = 2
	edited.Spec.HealthCheck.FailureThreshold = 2
	edited.Spec.HealthCheck.ProbeURL = "https://other.example/"
	edited.Spec.CredentialsRef = &v1alpha1.CredentialsRef{Name: "secret"}
	require.NoError(t, r.engine.Update(edited))
	assert.Equal(t, healthy, r.verdict(p))
	j := r.one()
	assert.Equal(t, "https://other.example/", j.order.healthCheck.ProbeURL)
	assert.Equal(t, "secret", j.order.secret)
	r.engine.finish(j, bad(probe.ReasonDialFailed))
	assert.Equal(t, unhealthy, r.verdict(p), "the failure before the edit counted")
	assert.Equal(t, int64(2), r.write(p).status.ObservedGeneration)
}

func TestAnEditedIntervalCountsFromTheLastProbe(t *testing.T) {
	r := newRig(t, 8)
	p := judged("a", healthy)
	p.Spec.HealthCheck.Interval = metav1.Duration{Duration: time.Hour}
	require.NoError(t, r.engine.Add(p))
	r.step(time.Hour)
	r.engine.finish(r.one(), good(40*time.Millisecond))

	interval := func(d time.Duration) {
		edited := p.DeepCopy()
		edited.Spec.HealthCheck.Interval = metav1.Duration{Duration: d}
		require.NoError(t, r.engine.Update(edited))
	}
	interval(time.Minute)
	r.step(59 * time.Second)
	r.none()
	r.step(time.Second)
	r.engine.finish(r.one(), good(40*time.Millisecond))
	interval(2 * time.Minute)
	r.step(119 * time.Second)
	r.none()
	r.step(time.Second)
	r.one()
}

func TestAnEditedIntervalBeforeTheFirstProbeAfterARestart(t *testing.T) {
	r := newRig(t, 8)
	p := judged("a", healthy)
	p.Spec.HealthCheck.Interval = metav1.Duration{Duration: time.Hour}
	require.NoError(t, r.engine.Add(p)) // due in half an hour
	edited := p.DeepCopy()
	edited.Spec.HealthCheck.Interval = metav1.Duration{Duration: time.Minute}
	require.NoError(t, r.engine.Update(edited))
	r.step(time.Minute)
	r.one()
}
