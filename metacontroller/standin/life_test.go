package standin_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/stack/hooktest"
	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/stack/upstream"
)

// The hooks see the same life of a Proxy from the engine as they did from the
// real Metacontroller, under either of its strategies.
func TestLifeWithTheEngine(t *testing.T) {
	got := live(t, hooktest.Driver{})
	for _, strategy := range upstream.Strategies() {
		requireSameLife(t, loadLife(t, string(strategy)), essences(got))
	}
}

// The recorded lives are still true, and down to the last detail of each child
// the engine shows the same.
func TestLifeWithTheRealMetacontroller(t *testing.T) {
	drivers := hooktest.RealDrivers(t)
	var ours []observation
	t.Run("engine", func(t *testing.T) { ours = live(t, hooktest.Driver{}) })
	for _, d := range drivers {
		t.Run(d.String(), func(t *testing.T) {
			got := live(t, d)
			if *update {
				saveLife(t, d.String(), essences(got))
			}
			requireSameLife(t, loadLife(t, d.String()), essences(got))
			requireSameLife(t, got, ours)
		})
	}
}

func essences(life []observation) []observation {
	var out []observation
	for _, o := range life {
		out = append(out, essence(o))
	}
	return out
}

// requireSameLife shows where two lives part.
func requireSameLife(t *testing.T, want, got []observation) {
	t.Helper()
	for i := range min(len(want), len(got)) {
		require.Equal(t, want[i], got[i], "observation %d, want it in step %q, got it in step %q", i, want[i].Step, got[i].Step)
	}
	require.Len(t, got, len(want))
}
