package prober

import (
	"net"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/api/v1alpha1"
	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/prober/probetest"
	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/stack/controlplane/controlplanetest"
)

// The whole process against a target that goes away under a proxy that works: the
// verdict stays, kubectl get pxp says why, and all is as before when the target is
// back at the same address.
func TestATargetGoesAwayAndComesBack(t *testing.T) {
	c, ca := newCluster(t), probetest.NewCA(t)
	host := controlplanetest.Addr() // whose ports nobody takes while the target is away
	cert := ca.Certificate(t, host, time.Now().Add(time.Hour))
	target := probetest.ServeTLSOn(t, net.JoinHostPort(host, "0"), cert, probetest.Echo)
	s := newSceneAt(t, "held", ca, probetest.Forward(func(authority string) (string, bool) { return authority, true }))
	hc := s.swift().Spec.HealthCheck
	hc.ProbeURL, hc.ExitProof = "https://"+target.Addr+"/", &v1alpha1.ExitProof{}
	s.guard = GuardConfig{DirectCheck: true, TargetHold: time.Hour}
	c.start(s)
	c.create(s.probe)
	st := c.becomes("held", healthy, "ProbeSucceeded")
	assert.Equal(t, "127.0.0.1", st.ExitIP)

	target.Close()
	st = c.becomes("held", healthy, "ProbeTargetDown")
	assert.Contains(t, st.Message, "the direct check of "+target.Addr+" fails too: dial: connection refused")
	seen := s.proxy.Seen()
	eventually(t, func() bool { return s.proxy.Seen() >= seen+4 }, "probed on")
	assert.Equal(t, healthy, c.get("held").Status.Verdict)

	probetest.ServeTLSOn(t, target.Addr, cert, probetest.Echo)
	c.becomes("held", healthy, "ProbeSucceeded")

	s.proxy.Set(probetest.Hang) // now it is the proxy
	c.becomes("held", unhealthy, "ConnectTimeout")
}
