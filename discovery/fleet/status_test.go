package fleet

import (
	"testing"

	"github.com/stretchr/testify/assert"

	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/api/v1alpha1"
)

// TestStatusOfIsUsableWhereTheProxyIsLeasable covers every row of the table of reasons.
func TestStatusOfIsUsableWhereTheProxyIsLeasable(t *testing.T) {
	for name, tt := range leasableCases() {
		t.Run(name, func(t *testing.T) {
			object := readyProxy()
			tt.change(object)
			f := aliveProber()
			if tt.fresh != nil {
				f = *tt.fresh
			}
			p := FromAPI(object)
			s := StatusOf(p, f)
			assert.Equal(t, tt.want == ReasonNone, s.Usable)
			assert.NotEmpty(t, s.Reason)
			assert.NotEmpty(t, s.Message)
			if tt.explain != "" {
				assert.Equal(t, tt.explain, s.Message)
			}
			switch tt.want {
			case ReasonNone:
				assert.Equal(t, Status{v1alpha1.VerdictHealthy, "ProbeSucceeded", true, "probes through it succeed (ProbeSucceeded)"}, s)
			case ReasonUnhealthy:
				assert.Equal(t, v1alpha1.VerdictUnhealthy, s.Verdict)
				assert.Equal(t, reason(object.Status.Conditions), s.Reason, "the prober's")
			case ReasonVerdictStale:
				assert.Equal(t, v1alpha1.VerdictUnknown, s.Verdict, "a stale verdict is none")
			case ReasonNotReady:
			default:
				assert.Equal(t, string(tt.want), s.Reason)
			}
		})
	}
}

// A verdict against the instance counts before the hooks have set the status from it.
func TestStatusOfFollowsTheNewerVerdict(t *testing.T) {
	p := FromAPI(readyProxy())
	sick := p.withVerdict(&verdict{instance: p.Instance, phase: v1alpha1.PhaseUnhealthy, reason: "DialFailed"})
	s := StatusOf(sick, aliveProber())
	assert.Equal(t, v1alpha1.VerdictUnhealthy, s.Verdict)
	assert.False(t, s.Usable)
	assert.Contains(t, s.Message, "by its ProxyProbe")
}
