package plan

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/stack/chaos/history"
)

func config(seed uint64, length time.Duration) Config {
	cfg := Config{Seed: seed, Length: length}
	for i := range 40 {
		cfg.External = append(cfg.External, fmt.Sprintf("external-%03d", i))
		cfg.Pods = append(cfg.Pods, fmt.Sprintf("pod-%03d", i))
		cfg.VMs = append(cfg.VMs, fmt.Sprintf("vm-%03d", i))
	}
	return cfg
}

// plans checks the shortest and a long plan of many seeds.
func plans(t *testing.T, check func(t *testing.T, cfg Config, p *Plan)) {
	t.Helper()
	for seed := range uint64(12) {
		for _, length := range []time.Duration{Least, 10 * time.Minute} {
			cfg := config(seed, length)
			p, err := New(cfg)
			require.NoError(t, err)
			check(t, cfg, p)
		}
	}
}

func TestSameSeedSamePlan(t *testing.T) {
	plans(t, func(t *testing.T, cfg Config, p *Plan) {
		again, err := New(cfg)
		require.NoError(t, err)
		require.Equal(t, p, again)
	})
	a, err := New(config(1, Least))
	require.NoError(t, err)
	b, err := New(config(2, Least))
	require.NoError(t, err)
	assert.NotEqual(t, a, b)
}

func TestEveryFaultIsPlayed(t *testing.T) {
	var deck []card
	for _, some := range [][]card{kills, freezes, surroundings, computeFaults, externalFaults} {
		deck = append(deck, some...)
	}
	acts := []string{ActInPlace, ActReplace, ActDelete, ActRecreate}
	plans(t, func(t *testing.T, _ Config, p *Plan) {
		seen, did := map[card]bool{}, map[string]bool{}
		for _, s := range p.Steps() {
			c := card{kind: s.Kind, subject: s.Subject, variant: s.Variant}
			switch s.Kind {
			case history.ProxyTruth:
				c.subject = ""
			case history.Terminated, Act:
				did[s.Variant] = true
			}
			seen[c] = true
		}
		for _, c := range deck {
			require.True(t, seen[card{kind: c.kind, subject: c.subject, variant: c.variant}], "%+v", c)
		}
		for _, act := range append(acts, InstanceDelete, InstancePreempt, InstanceRemove) {
			require.True(t, did[act], act)
		}
	})
}

func TestStepsEndInTime(t *testing.T) {
	plans(t, func(t *testing.T, cfg Config, p *Plan) {
		for _, s := range p.Steps() {
			require.GreaterOrEqual(t, s.At, time.Duration(0))
			require.LessOrEqual(t, s.At+s.For, cfg.Length, s.String())
		}
	})
}

func TestStepsOfALaneDoNotOverlap(t *testing.T) {
	plans(t, func(t *testing.T, _ Config, p *Plan) {
		for _, lane := range p.Lanes {
			require.NotEmpty(t, lane.Steps, lane.Name)
			var over time.Duration
			for _, s := range lane.Steps {
				if s.Kind != Act {
					require.GreaterOrEqual(t, s.At, over, "%s: %s", lane.Name, s)
				}
				over = s.At + s.For
			}
		}
	})
}

func TestProxyIsBrokenOnceAtATime(t *testing.T) {
	plans(t, func(t *testing.T, _ Config, p *Plan) {
		until := map[string]time.Duration{}
		at := map[string]string{}
		for _, lane := range p.Lanes {
			for _, s := range lane.Steps {
				if s.Kind != history.ProxyTruth {
					continue
				}
				if other, known := at[s.Subject]; known {
					require.Equal(t, other, lane.Name, s.Subject)
				}
				at[s.Subject] = lane.Name
				require.GreaterOrEqual(t, s.At, until[s.Subject])
				until[s.Subject] = s.At + s.For
			}
		}
	})
}

func TestLanesPerKind(t *testing.T) {
	plans(t, func(t *testing.T, _ Config, p *Plan) {
		lanes := map[history.Family]map[string]bool{}
		for _, lane := range p.Lanes {
			for _, s := range lane.Steps {
				if lanes[s.Kind] == nil {
					lanes[s.Kind] = map[string]bool{}
				}
				lanes[s.Kind][lane.Name] = true
			}
		}
		for kind, in := range lanes {
			switch kind {
			case history.ProxyTruth:
				require.Len(t, in, proxyLanes+2)
			case history.Terminated, Act:
				require.Len(t, in, 2)
			default:
				require.Len(t, in, 1, kind)
			}
		}
	})
}

func TestNewRejectsBadConfig(t *testing.T) {
	_, err := New(config(1, time.Second))
	require.ErrorContains(t, err, "too short")
	cfg := config(1, Least)
	cfg.VMs = nil
	_, err = New(cfg)
	require.ErrorContains(t, err, "5 of VMs")
}

func TestStepString(t *testing.T) {
	s := Step{At: 1500 * time.Millisecond, For: 2 * time.Second, Kind: history.Kill, Subject: Etcd}
	assert.Equal(t, "    1.5s kill etcd for 2.0s", s.String())
	assert.Equal(t, "    1.5s act pod-1 delete", Step{At: s.At, Kind: Act, Subject: "pod-1", Variant: ActDelete}.String())
}

// TestSlowFaultsComeFirst: the short plan starts with the faults that take minutes to
// recover from, and no plan plays one late.
func TestSlowFaultsComeFirst(t *testing.T) {
	slow := map[string]bool{"kill " + Cloud: true, "kill " + APIServer: true, "kill " + Etcd: true, "compute " + ComputeStockout: true}
	plans(t, func(t *testing.T, cfg Config, p *Plan) {
		for _, lane := range p.Lanes {
			for i, s := range lane.Steps {
				if slow[string(s.Kind)+" "+s.Subject+s.Variant] && i > 2 {
					require.LessOrEqual(t, s.At, cfg.Length-slowRecovery+6*time.Second, s.String())
				}
			}
		}
	})
}

// TestSlowProcessesAreNotBrokenTwice: in the first round the lanes of kills and freezes do
// not meet at a process that is killed early.
func TestSlowProcessesAreNotBrokenTwice(t *testing.T) {
	plans(t, func(t *testing.T, _ Config, p *Plan) {
		first := map[string]time.Duration{}
		for _, s := range p.Steps() {
			name := string(s.Kind) + " " + s.Subject
			if _, known := first[name]; !known {
				first[name] = s.At
			}
		}
		for _, name := range slowKills {
			require.Greater(t, first["freeze "+name], first["kill "+name]+5*time.Second, name)
		}
	})
}

// TestCalms: a long plan has times without a fault on the verdict path that are longer
// than the checker's staleGrace and a proxy's detection limit together.
func TestCalms(t *testing.T) {
	plans(t, func(t *testing.T, cfg Config, p *Plan) {
		if cfg.Length == Least {
			return
		}
		var ends []time.Duration
		for _, s := range p.Steps() {
			if (s.Kind == history.Kill || s.Kind == history.Freeze) && slices.Contains(verdictPath, s.Subject) {
				ends = append(ends, s.At+s.For)
			}
		}
		slices.Sort(ends)
		long := 0
		for i := range ends[1:] {
			if ends[i+1]-ends[i] > time.Minute {
				long++
			}
		}
		require.GreaterOrEqual(t, long, 2)
	})
}
