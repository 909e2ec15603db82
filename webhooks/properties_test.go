package webhooks

import (
	"bytes"
	"encoding/json"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/runtime"

	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/api/v1alpha1"
	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/metacontroller"
)

// strictly decodes an answer as Metacontroller does under hook version v2.
func strictly(t *testing.T, answer []byte) metacontroller.Response {
	t.Helper()
	dec := json.NewDecoder(bytes.NewReader(answer))
	dec.DisallowUnknownFields()
	var resp metacontroller.Response
	require.NoError(t, dec.Decode(&resp))
	return resp
}

func statusOfAnswer(t *testing.T, resp metacontroller.Response) v1alpha1.ProxyStatus {
	t.Helper()
	var s v1alpha1.ProxyStatus
	require.NoError(t, runtime.DefaultUnstructuredConverter.FromUnstructured(resp.Status, &s))
	return s
}

func listed(resp metacontroller.Response) []string {
	var out []string
	for _, c := range resp.Children {
		out = append(out, c.GetKind()+" "+c.GetName())
	}
	return out
}

func TestPropertySameInputSameBytes(t *testing.T) {
	forEachGenerated(t, func(t *testing.T, c generated) {
		body := c.body(t)
		first := answerTo(t, c.hooks(noon()), c.hook(), body)
		for range 3 {
			require.Equal(t, string(first), string(answerTo(t, c.hooks(noon()), c.hook(), body)))
		}
	})
}

func TestPropertyNeverNull(t *testing.T) {
	forEachGenerated(t, func(t *testing.T, c generated) {
		answer := answerTo(t, c.hooks(noon()), c.hook(), c.body(t))
		resp := strictly(t, answer)
		require.NotEmpty(t, resp.Status)
		require.NotNil(t, resp.Children)
		require.False(t, bytes.Contains(answer, []byte("null")), "%s", answer)
		for _, child := range resp.Children {
			require.NotNil(t, child)
			require.Equal(t, "crawl", child.GetNamespace())
			require.LessOrEqual(t, len(child.GetName()), 63)
			require.Empty(t, child.GetUID())
		}
		again, err := resp.Encode()
		require.NoError(t, err)
		require.JSONEq(t, string(answer), string(again), "the strict round trip loses nothing")
	})
}

func TestPropertyUnknownNeverMeansDelete(t *testing.T) {
	troubles := 0
	forEachGenerated(t, func(t *testing.T, c generated) {
		if !c.trouble || c.finalizing {
			return
		}
		troubles++
		resp := strictly(t, answerTo(t, c.hooks(noon()), c.hook(), c.body(t)))
		require.Subset(t, listed(resp), c.living())
		require.Positive(t, resp.ResyncAfterSeconds)
	})
	require.Greater(t, troubles, 40, "the generator makes them")
}

func TestPropertyResyncWhilePending(t *testing.T) {
	forEachGenerated(t, func(t *testing.T, c generated) {
		resp := strictly(t, answerTo(t, c.hooks(noon()), c.hook(), c.body(t)))
		pending := resp.Status["phase"] != string(v1alpha1.PhaseReady) && resp.Status["phase"] != string(v1alpha1.PhaseUnhealthy)
		for _, child := range listed(resp) {
			pending = pending || !slices.Contains(c.living(), child)
		}
		if pending && !resp.Finalized {
			require.Positive(t, resp.ResyncAfterSeconds, resp.Status["phase"])
		}
	})
}

// With the answer's status in place and nothing else changed, the same hooks
// answer the same.
func TestPropertySecondSyncEqualsTheFirst(t *testing.T) {
	forEachGenerated(t, func(t *testing.T, c generated) {
		h := c.hooks(noon())
		first := answerTo(t, h, c.hook(), c.body(t))
		c.proxy.Status = statusOfAnswer(t, strictly(t, first))
		require.Equal(t, string(first), string(answerTo(t, h, c.hook(), c.body(t))))
	})
}

// Once the status is in place the clock says nothing any more, but for the one
// deadline.
func TestPropertyNoWallClock(t *testing.T) {
	forEachGenerated(t, func(t *testing.T, c generated) {
		first := strictly(t, answerTo(t, c.hooks(noon()), c.hook(), c.body(t)))
		c.proxy.Status = statusOfAnswer(t, first)
		later := noon().Add(1000 * time.Hour)
		switch v1alpha1.FindCondition(c.proxy.Status.Conditions, v1alpha1.ConditionProvisioned).Reason {
		case v1alpha1.ReasonProvisioning, v1alpha1.ReasonProvisioningTimeout:
			later = noon().Add(time.Second)
		}
		a, b := answerTo(t, c.hooks(noon()), c.hook(), c.body(t)), answerTo(t, c.hooks(later), c.hook(), c.body(t))
		require.Equal(t, string(a), string(b))
	})
}

func TestPropertyAnswersFitTheCRDs(t *testing.T) {
	status, probe := proxySchema(t).Properties["status"], probeSchema(t)
	forEachGenerated(t, func(t *testing.T, c generated) {
		resp := strictly(t, answerTo(t, c.hooks(noon()), c.hook(), c.body(t)))
		require.Empty(t, status.check("status", decoded(t, resp.Status)))
		for _, child := range resp.Children {
			if child.GetKind() == "ProxyProbe" {
				require.Empty(t, probe.check("", decoded(t, child)))
			}
		}
	})
}

func TestPropertyStatusMakesSense(t *testing.T) {
	forEachGenerated(t, func(t *testing.T, c generated) {
		resp := strictly(t, answerTo(t, c.hooks(noon()), c.hook(), c.body(t)))
		s := statusOfAnswer(t, resp)
		require.Equal(t, c.proxy.Generation, s.ObservedGeneration)
		require.Len(t, s.Conditions, 2)
		provisioned := v1alpha1.ConditionTrue(s.Conditions, v1alpha1.ConditionProvisioned)
		require.Equal(t, provisioned, s.IP != "", "an address exactly when there is something to use")
		require.Equal(t, provisioned, s.Port != 0)
		switch s.Phase {
		case v1alpha1.PhaseReady:
			require.True(t, provisioned && v1alpha1.ConditionTrue(s.Conditions, v1alpha1.ConditionHealthy))
			require.NotEmpty(t, s.InstanceID)
		case v1alpha1.PhaseFailed:
			require.False(t, provisioned, "Failed only without an instance")
		case v1alpha1.PhaseDeleting:
			require.True(t, c.finalizing)
			require.Empty(t, resp.Children)
		}
		require.Equal(t, c.finalizing, s.Phase == v1alpha1.PhaseDeleting)
	})
}
