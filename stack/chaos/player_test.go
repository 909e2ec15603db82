package chaos

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	"k8s.io/utils/clock"

	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/stack/chaos/fault"
	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/stack/chaos/history"
	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/stack/chaos/plan"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// things are broken by steps, by their subjects.
type things struct {
	mu     sync.Mutex
	broken map[string]bool
	order  []string
	heals  time.Duration // how long healing takes
}

// breaks returns a fault of the thing with that name, which fails or cannot be healed.
func (a *things) breaks(name string, fails, unhealed error) fault.Fault {
	return fault.Fault{Window: history.Fault{Family: history.Kill, Subject: name}, Inject: func(context.Context) (fault.Heal, error) {
		if fails != nil {
			return nil, fails
		}
		a.set(name, true)
		return func(ctx context.Context) error {
			time.Sleep(a.heals)
			a.set(name, false)
			return errors.Join(unhealed, ctx.Err())
		}, nil
	}}
}

func (a *things) set(name string, broken bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.broken[name] = broken
	a.order = append(a.order, fmt.Sprintf("%s %t", name, broken))
}

func newPlayer(t *testing.T, all *things, long time.Duration) (*player, func() *history.History) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "history")
	recorder, err := history.Start(path, clock.RealClock{}, history.Begin{})
	require.NoError(t, err)
	p := &player{
		fault: func(s plan.Step) (fault.Fault, error) {
			switch s.Variant {
			case "away":
				return all.breaks(s.Subject, errors.New("it is away"), nil), nil
			case "stays":
				return all.breaks(s.Subject, nil, errors.New("cannot")), nil
			case "unknown":
				return fault.Fault{}, errors.New("no such fault")
			}
			return all.breaks(s.Subject, nil, nil), nil
		},
		act: func(_ context.Context, name, variant string, _ uint64) bool {
			all.set(name+" "+variant, true)
			return true
		},
		recorder: recorder, print: t.Logf, begin: time.Now(), end: time.Now().Add(long), tally: map[string]int{},
	}
	return p, func() *history.History {
		require.NoError(t, recorder.Close())
		h, err := history.Open(path)
		require.NoError(t, err)
		return h
	}
}

func lanes(of ...[]plan.Step) *plan.Plan {
	p := &plan.Plan{}
	for _, steps := range of {
		p.Lanes = append(p.Lanes, plan.Lane{Steps: steps})
	}
	return p
}

func TestPlayHealsAndRecords(t *testing.T) {
	all := &things{broken: map[string]bool{}}
	p, read := newPlayer(t, all, time.Minute)
	require.NoError(t, p.play(t.Context(), lanes(
		[]plan.Step{{Kind: history.Kill, Subject: "a", For: time.Millisecond}, {Kind: history.Kill, Subject: "a", At: 2 * time.Millisecond}},
		[]plan.Step{{Kind: history.Kill, Subject: "b", Variant: "away"}, {Kind: plan.Act, Subject: "x", Variant: plan.ActDelete}},
	)))
	assert.Equal(t, map[string]bool{"a": false, "x delete": true}, all.broken)
	assert.Equal(t, map[string]int{"kill a": 2, "user: delete": 1}, p.tally)
	assert.Equal(t, 1, p.skipped)
	h := read()
	require.Len(t, h.Faults, 2, "a skipped step is no fault")
	for _, f := range h.Faults {
		assert.Less(t, f.From, f.To)
	}
}

func TestPlayHealsAfterCancel(t *testing.T) {
	all := &things{broken: map[string]bool{}}
	p, _ := newPlayer(t, all, time.Hour)
	ctx, cancel := context.WithCancel(t.Context())
	played := make(chan error)
	go func() {
		played <- p.play(ctx, lanes([]plan.Step{{Kind: history.Kill, Subject: "a", For: time.Hour}, {Kind: history.Kill, Subject: "b"}}))
	}()
	require.Eventually(t, func() bool { all.mu.Lock(); defer all.mu.Unlock(); return all.broken["a"] }, 10*time.Second, time.Millisecond)
	cancel()
	require.NoError(t, <-played, "healing has its own context")
	assert.Equal(t, []string{"a true", "a false"}, all.order)
}

func TestPlayHealsAtTheEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		all := &things{broken: map[string]bool{}, heals: time.Millisecond}
		p, _ := newPlayer(t, all, 30*time.Millisecond)
		require.NoError(t, p.play(t.Context(), lanes([]plan.Step{
			{Kind: history.Kill, Subject: "a", For: time.Hour}, {Kind: history.Kill, Subject: "late", At: time.Millisecond},
		})))
		assert.Equal(t, []string{"a true", "a false"}, all.order)
		assert.Equal(t, 1, p.skipped)
		assert.Equal(t, time.Millisecond, time.Since(p.end), "and it was kept that long")
	})
}

func TestPlayReturnsHealErrors(t *testing.T) {
	all := &things{broken: map[string]bool{}}
	p, _ := newPlayer(t, all, time.Minute)
	err := p.play(t.Context(), lanes([]plan.Step{{Kind: history.Kill, Subject: "a", Variant: "stays"}, {Kind: history.Kill, Variant: "unknown"}}))
	require.ErrorContains(t, err, "kill a cannot be healed: cannot")
	assert.ErrorContains(t, err, "no such fault")
}

func TestRunRejectsBadConfig(t *testing.T) {
	err := Run(t.Context(), Config{Duration: time.Second}, t.Output())
	require.ErrorContains(t, err, "duration 1s: want "+LeastDuration.String())
	assert.ErrorContains(t, err, "no file for the history")
}

func TestFew(t *testing.T) {
	left := map[string]string{}
	for i := range 12 {
		left[fmt.Sprintf("p%02d", i)] = "Probing"
	}
	assert.Contains(t, few(left), "p00 Probing, p01 Probing")
	assert.Contains(t, few(left), "and 2 more")
}
