package prober

import (
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/api/v1alpha1"
	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/prober/probe"
	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/prober/probetest"
)

const targetName = "target.invalid"

// scene is a CONNECT proxy before a TLS target, and the ProxyProbe about it.
type scene struct {
	ca    *probetest.CA
	proxy *probetest.Proxy
	works probetest.Behaviour
	probe *v1alpha1.ProxyProbe
	guard GuardConfig
}

func newScene(t *testing.T, name string) *scene {
	t.Helper()
	ca := probetest.NewCA(t)
	target := probetest.ServeTLS(t, ca.Certificate(t, targetName, time.Now().Add(time.Hour)), probetest.Status(204))
	works := probetest.Forward(probetest.To(target.Addr))
	return newSceneAt(t, name, ca, works)
}

func newSceneAt(t *testing.T, name string, ca *probetest.CA, works probetest.Behaviour) *scene {
	t.Helper()
	s := &scene{ca: ca, proxy: probetest.StartProxy(t, works), works: works, probe: proxyProbeOf(name)}
	s.probe.Spec.Host, s.probe.Spec.Port = s.proxy.Host(), s.proxy.Port()
	s.probe.Spec.HealthCheck.ProbeURL = "https://" + targetName + "/"
	return s
}

// The thresholds, with real probes through a real proxy that fails in several ways
// and recovers.
func TestThresholdsAgainstARealProxy(t *testing.T) {
	r, s := newRig(t, 1), newScene(t, "a")
	s.probe.Spec.HealthCheck.SuccessThreshold = 2
	s.probe.Spec.HealthCheck.Timeout = metav1.Duration{Duration: patience}
	c := &checker{probe: probe.New(s.ca.Pool()).Probe}
	require.NoError(t, r.engine.Add(s.probe))
	round := func(b probetest.Behaviour, want v1alpha1.Verdict, reason probe.Reason) {
		t.Helper()
		s.proxy.Set(b)
		j := r.one()
		result := c.check(j.ctx, j)
		assert.Equal(t, reason, result.Reason, result.Message)
		r.engine.finish(j, result)
		r.step(30 * time.Second)
		assert.Equal(t, want, r.verdict(s.probe))
	}
	round(s.works, "", probe.ReasonProbeSucceeded)
	round(probetest.Reset, "", probe.ReasonConnectFailed)
	round(s.works, "", probe.ReasonProbeSucceeded)
	round(s.works, healthy, probe.ReasonProbeSucceeded)
	r.write(s.probe)
	round(probetest.Answer(http.StatusForbidden), healthy, probe.ReasonConnectRefused)
	round(probetest.CloseAtOnce, healthy, probe.ReasonConnectFailed)
	round(s.works, healthy, probe.ReasonProbeSucceeded)
	round(probetest.Answer(http.StatusForbidden), healthy, probe.ReasonConnectRefused)
	round(probetest.Answer(http.StatusForbidden), healthy, probe.ReasonConnectRefused)
	round(probetest.Answer(http.StatusBadGateway), unhealthy, probe.ReasonUpstreamFailed)
	assert.Equal(t, "UpstreamFailed", r.write(s.probe).status.Reason)
	round(s.works, unhealthy, probe.ReasonProbeSucceeded)
	round(s.works, healthy, probe.ReasonProbeSucceeded)
}
