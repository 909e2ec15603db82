package access

import (
	"context"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	clocktesting "k8s.io/utils/clock/testing"

	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/internal/program/programtest"
	"go.uber.org/goleak"
)

var start = time.Date(2026, 11, 1, 12, 0, 0, 0, time.UTC)

// mounted is a Secret as the kubelet mounts it: a link to a folder that a
// rotation replaces by another.
type mounted struct {
	*testing.T
	folder string
	n      int
	clock  *clocktesting.FakeClock
	logs   programtest.Output
}

func mount(t *testing.T) *mounted {
	m := &mounted{T: t, folder: t.TempDir(), clock: clocktesting.NewFakeClock(start)}
	require.NoError(t, os.Symlink("..data/tokens.yaml", m.path()))
	return m
}

func (m *mounted) path() string { return filepath.Join(m.folder, "tokens.yaml") }

// put replaces the Secret's content in one step.
func (m *mounted) put(text string) {
	m.Helper()
	m.n++
	version := filepath.Join(m.folder, "v"+strings.Repeat("i", m.n))
	require.NoError(m, os.Mkdir(version, 0o755))
	require.NoError(m, os.WriteFile(filepath.Join(version, "tokens.yaml"), []byte(text), 0o600))
	require.NoError(m, os.Symlink(filepath.Base(version), filepath.Join(m.folder, "tmp")))
	require.NoError(m, os.Rename(filepath.Join(m.folder, "tmp"), filepath.Join(m.folder, "..data")))
}

// run starts Tokens and returns a function that waits until they have looked at
// the file once more.
func (m *mounted) run(perSecond float64) (*Tokens, func()) {
	m.Helper()
	tokens, err := FromFile(m.path(), perSecond, m.clock, slog.New(slog.NewTextHandler(&m.logs, nil)))
	require.NoError(m, err)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- tokens.Run(ctx) }()
	m.Cleanup(func() {
		cancel()
		assert.NoError(m, <-done)
	})
	require.Eventually(m, m.clock.HasWaiters, 10*time.Second, time.Millisecond)
	return tokens, func() { m.clock.Step(reloadInterval) }
}

const (
	first  = "CANARY-first-0123456789"
	second = "CANARY-second-012345678"
)

func entry(name, token, more string) string {
	return "tokens: [{name: " + name + ", token: " + token + ", scopes: [lease]" + more + "}]"
}

// TestTokensAreRotatedWithoutRestart walks a rotation: both tokens are good
// while crawlers change over.
func TestTokensAreRotatedWithoutRestart(t *testing.T) {
	m := mount(t)
	m.put(entry("eu", first, ""))
	tokens, look := m.run(0)
	assert.Equal(t, "eu", tokens.Identify("Bearer "+first).Name)
	assert.Equal(t, ScopeLease, tokens.Identify("Bearer "+first).Scope)
	assert.Nil(t, tokens.Identify("Bearer "+second))

	m.put(entry("eu", second, ", previousToken: "+first))
	look()
	require.Eventually(t, func() bool { return tokens.Identify("Bearer "+second) != nil }, 10*time.Second, time.Millisecond)
	assert.NotNil(t, tokens.Identify("Bearer "+first))
	assert.Same(t, tokens.Identify("Bearer "+first), tokens.Identify("Bearer "+second), "they share one rate")
	assert.Equal(t, []string{"eu"}, tokens.Names())

	m.put(entry("eu", second, ""))
	look()
	require.Eventually(t, func() bool { return tokens.Identify("Bearer "+first) == nil }, 10*time.Second, time.Millisecond)
	assert.NotNil(t, tokens.Identify("Bearer "+second))
	assert.NotContains(t, m.logs.String(), "CANARY")
}

// Each invalid content is logged once, and a valid file is loaded again.
func TestInvalidFileKeepsTheLastTokens(t *testing.T) {
	m := mount(t)
	m.put(entry("eu", first, ""))
	tokens, look := m.run(0)
	said := func() int { return strings.Count(m.logs.String(), "tokens file refused") }

	m.put("tokens: [{name: eu, token: " + second + "}]")
	look()
	require.Eventually(t, tokens.Refused, 10*time.Second, time.Millisecond)
	look()
	look()
	assert.NotNil(t, tokens.Identify("Bearer "+first))
	assert.Nil(t, tokens.Identify("Bearer "+second))
	assert.InDelta(t, 1, testutil.ToFloat64(tokens.Collector()), 0)
	require.Eventually(t, func() bool { return said() == 1 }, 10*time.Second, time.Millisecond)
	assert.Contains(t, m.logs.String(), `token \"eu\": it has no scopes`)

	require.NoError(t, os.Remove(filepath.Join(m.folder, "..data")))
	look()
	require.Eventually(t, func() bool { return said() == 2 }, 10*time.Second, time.Millisecond)
	assert.Contains(t, m.logs.String(), "no such file")
	assert.NotNil(t, tokens.Identify("Bearer "+first))

	m.put(entry("eu", second, ""))
	look()
	require.Eventually(t, func() bool { return tokens.Identify("Bearer "+second) != nil && !tokens.Refused() }, 10*time.Second, time.Millisecond)
	assert.Nil(t, tokens.Identify("Bearer "+first))
	assert.InDelta(t, 0, testutil.ToFloat64(tokens.Collector()), 0)
	assert.NotContains(t, m.logs.String(), "CANARY")
}

func TestRates(t *testing.T) {
	m := mount(t)
	m.put(`tokens:
- {name: own, token: ` + first + `, scopes: [read], requestsPerSecond: 2}
- {name: default, token: ` + second + `, scopes: [read]}
- {name: unbounded, token: CANARY-third-01234567, scopes: [read], requestsPerSecond: 0}
`)
	tokens, look := m.run(0.5)
	own := tokens.Identify("Bearer " + first)
	for range 4 {
		ok, _ := own.Allow(start)
		assert.True(t, ok, "those of two seconds at once")
	}
	for range 3 {
		ok, wait := own.Allow(start)
		assert.False(t, ok)
		assert.Equal(t, 500*time.Millisecond, wait, "one that is refused counts no further")
	}
	ok, _ := own.Allow(start.Add(500 * time.Millisecond))
	assert.True(t, ok, "who waits as told gets through")

	slow := tokens.Identify("Bearer " + second)
	ok, _ = slow.Allow(start)
	assert.True(t, ok)
	ok, wait := slow.Allow(start)
	assert.False(t, ok)
	assert.Equal(t, 2*time.Second, wait)

	for range 1000 {
		ok, _ := tokens.Identify("Bearer " + "CANARY-third-01234567").Allow(start)
		require.True(t, ok)
	}

	m.put(entry("own", second, ", requestsPerSecond: 2"))
	look()
	require.Eventually(t, func() bool { return tokens.Identify("Bearer "+second).Name == "own" }, 10*time.Second, time.Millisecond)
	ok, _ = tokens.Identify("Bearer " + second).Allow(start.Add(500 * time.Millisecond))
	assert.False(t, ok, "a new value of a token brings no new allowance")
}

func TestSingle(t *testing.T) {
	tokens, err := Single(first, 1)
	require.NoError(t, err)
	assert.Equal(t, &Holder{Name: "default", Scope: ScopeAdmin, limiter: tokens.Identify("Bearer " + first).limiter}, tokens.Identify("Bearer "+first))
	assert.Nil(t, tokens.Identify("Bearer "+second))
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	assert.NoError(t, tokens.Run(ctx))
	for _, bad := range []string{"", "short", "with a space in the middle", strings.Repeat("x", 600)} {
		_, err := Single(bad, 1)
		assert.Error(t, err)
	}
}

func TestNoFileNoStart(t *testing.T) {
	_, err := FromFile(filepath.Join(t.TempDir(), "none"), 0, nil, nil)
	assert.ErrorContains(t, err, "tokens file: open")
	path := filepath.Join(t.TempDir(), "tokens.yaml")
	require.NoError(t, os.WriteFile(path, []byte(canary), 0o600))
	_, err = FromFile(path, 0, nil, nil)
	assert.ErrorContains(t, err, path+": a value is of the wrong type")
	assert.NotContains(t, err.Error(), canary)
}

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }
