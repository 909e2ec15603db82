package webhooks

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// finalizeLimit is how many calls it may take until nothing is left: the first
// leaves everything out, Pods terminate, all are gone. There is no deadline,
// since a Proxy waits for nothing but the deletion of its own children.
const finalizeLimit = 3

// finalizeLimit is that of the case: a VM's end also takes an adapter that is
// back, a Pod of an earlier provider that is gone, and a cloud that does it.
func (c contractCase) finalizeLimit() int {
	if c.cloud != nil {
		return finalizeLimit + 3
	}
	return finalizeLimit
}

// finalizing is the request, of whichever hook, as a finalize request.
func (c contractCase) finalizing(t testing.TB, a applier) (contractCase, *store) {
	t.Helper()
	s := newStore(t, c, a)
	s.request["finalizing"] = true
	c.hook, c.body, c.known = "finalize", s.body(t), nil
	return c, s
}

// From every state, also from the middle of a replacement or of trouble.
func TestContractFinalizeConverges(t *testing.T) {
	forEachCase(t, func(t *testing.T, c contractCase) {
		c, s := c.finalizing(t, dynamicApply{})
		h := c.hooks(c.now)
		for call := 1; ; call++ {
			answer := answerTo(t, h, "finalize", s.body(t))
			a := v2Of(t, answer)
			require.Empty(t, a.Children, "nothing is made or kept on the way out")
			if *a.Finalized {
				break
			}
			require.Positive(t, *a.ResyncAfterSeconds, "no event may come")
			s.carryOut(t, answer)
			require.Less(t, call, c.finalizeLimit(), "children left: %v", s.request["children"])
		}
	}, "sync", "finalize")
}

// Finalize is idempotent: the answer may be lost, or the removal of the finalizer
// fail, and a retry gets the same answer, from this process or another.
func TestContractFinalizeIsIdempotent(t *testing.T) {
	forEachCase(t, func(t *testing.T, c contractCase) {
		c, s := c.finalizing(t, dynamicApply{})
		h := c.hooks(c.now)
		for range c.finalizeLimit() {
			body := s.body(t)
			answer := answerTo(t, h, "finalize", body)
			sameBytes(t, answer, answerTo(t, h, "finalize", body), "called again")
			sameBytes(t, answer, answerTo(t, c.hooks(c.now), "finalize", body), "in another process")
			s.carryOut(t, answer)
		}
		last := answerTo(t, h, "finalize", s.body(t))
		require.True(t, *v2Of(t, last).Finalized)
		s.carryOut(t, last)
		sameBytes(t, last, answerTo(t, h, "finalize", s.body(t)), "with everything done")
	}, "sync", "finalize")
}

// mayHaveVM reports whether the case may still have a VM that is not abandoned.
func (c contractCase) mayHaveVM(t testing.TB) bool {
	t.Helper()
	return c.cloud != nil && c.cloud.holds() && !abandons(t, c.body)
}

func TestContractFinalizeWaitsForChildren(t *testing.T) {
	finalized := 0
	forEachCase(t, func(t *testing.T, c contractCase) {
		c, s := c.finalizing(t, dynamicApply{})
		observed := len(s.children(podKind)) + len(s.children(probeKind))
		a := v2Of(t, c.answer(t))
		left := observed > 0 || c.mayHaveVM(t)
		require.Equal(t, !left, *a.Finalized, "children that terminate count, and a VM whose deletion is not confirmed")
		if *a.Finalized {
			finalized++
		}
	}, "sync", "finalize")
	require.Greater(t, finalized, 10)
}
