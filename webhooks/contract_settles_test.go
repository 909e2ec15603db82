package webhooks

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/api/v1alpha1"
	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/webhooks/proxytest"
)

// settleLimit is how many calls it may take until nothing changes any more. The
// longest way: an outdated Pod is left out, terminates, is gone, the new one is
// made, is seen.
const settleLimit = 6

func TestContractSettlesUnderDynamicApply(t *testing.T) {
	forEachCase(t, func(t *testing.T, c contractCase) { settles(t, c, dynamicApply{}) }, "sync")
}

func TestContractSettlesUnderServerSideApply(t *testing.T) {
	types := childTypes()
	forEachCase(t, func(t *testing.T, c contractCase) { settles(t, c, newServerSideApply(types)) }, "sync")
}

// settles carries answers out until one takes no write. Then the answer is the
// same for ever. From scratch the third answer is the second, byte for byte.
func settles(t *testing.T, c contractCase, a applier) {
	t.Helper()
	h, s := c.hooks(c.now), newStore(t, c, a)
	scratch := len(s.children(podKind))+len(s.children(probeKind)) == 0 && c.cloud == nil
	limit := settleLimit
	if c.cloud != nil {
		limit += 3 // the adapter comes back, a VM is seen to be made, and to run
	}
	var answers [][]byte
	for {
		answers = append(answers, answerTo(t, h, "sync", s.body(t)))
		writes := s.carryOut(t, answers[len(answers)-1])
		if len(writes) == 0 {
			break
		}
		require.Less(t, len(answers), limit, "call %d still led to %v", len(answers), writes)
	}
	last := answers[len(answers)-1]
	sameBytes(t, last, answerTo(t, h, "sync", s.body(t)), "at rest")
	require.Empty(t, s.carryOut(t, last))
	if scratch && len(answers) > 2 {
		sameBytes(t, answers[1], answers[2], "the third answer is the second")
	}
}

// An edit that takes something away takes it out of the ProxyProbe as well, and
// nothing else moves.
func TestContractEditsSettle(t *testing.T) {
	for name, newApplier := range map[string]func() applier{
		"dynamic-apply":     func() applier { return dynamicApply{} },
		"server-side-apply": func() applier { return newServerSideApply(childTypes()) },
	} {
		t.Run(name, func(t *testing.T) {
			p := proxytest.External()
			p.Spec.CredentialsRef = &v1alpha1.CredentialsRef{Name: "login"}
			c := contractCase{hook: "sync", body: request{proxy: p}.body(t), now: proxytest.Noon()}
			h, s := c.hooks(c.now), newStore(t, c, newApplier())
			sync := func() []string { return s.carryOut(t, answerTo(t, h, "sync", s.body(t))) }
			require.Contains(t, sync(), "create ProxyProbe fra-1")
			probe := func() object { return s.children(probeKind)["crawl/fra-1"].(object) }
			require.Equal(t, "login", text(probe(), "spec", "credentialsRef", "name"))
			require.Empty(t, sync())

			setNested(t, probe(), object{"verdict": "Healthy", "instanceID": text(probe(), "spec", "instanceID")}, "status")
			spec := s.parent()["spec"].(object)
			delete(spec, "credentialsRef")
			setNested(t, spec, list{int64(204)}, "healthCheck", "expectedStatusCodes")
			require.True(t, slices.Contains(sync(), "update ProxyProbe fra-1"))
			require.Nil(t, at(probe(), "spec", "credentialsRef"))
			require.Equal(t, list{int64(204)}, at(probe(), "spec", "healthCheck", "expectedStatusCodes"))
			require.Equal(t, "Healthy", text(probe(), "status", "verdict"), "an edit keeps the verdict")
			require.Empty(t, sync())
		})
	}
}
