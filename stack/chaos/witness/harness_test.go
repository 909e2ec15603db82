package witness

import (
	"context"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"

	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/stack/chaos/history"
	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/stack/controlplane/controlplanetest"
)

var shared controlplanetest.Shared

func TestMain(m *testing.M) { goleak.VerifyTestMain(shared.Main(m)) }

// scene is a witness with something to look at.
type scene struct {
	*testing.T
	cfg  Config
	path string
}

func newScene(t *testing.T) *scene {
	t.Helper()
	s := &scene{T: t, path: filepath.Join(t.TempDir(), "history.jsonl")}
	recorder, err := history.Start(s.path, clock.RealClock{}, history.Begin{})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, recorder.Close()) })
	s.cfg = Config{
		Recorder: recorder, Clock: clock.RealClock{}, Namespace: "default", Kube: &rest.Config{Host: "http://127.0.0.1:1"},
		VMsURL: "http://127.0.0.1:1/", PodRoot: "/no/pods", VMRoot: "/no/vms",
		Programs: func() []Program { return nil },
		VMPeriod: 20 * time.Millisecond, ProcessPeriod: 20 * time.Millisecond, MetricsPeriod: 20 * time.Millisecond,
		PressurePeriod: 20 * time.Millisecond,
	}
	return s
}

// run watches until the test ends.
func (s *scene) run() {
	s.Helper()
	ctx, cancel := context.WithCancel(s.Context())
	done := make(chan error, 1)
	go func() { done <- Run(ctx, s.cfg) }()
	s.Cleanup(func() {
		cancel()
		require.NoError(s, <-done)
	})
}

func (s *scene) read() *history.History {
	s.Helper()
	h, err := history.Open(s.path)
	require.NoError(s, err)
	return h
}

func (s *scene) await(condition func() bool) {
	s.Helper()
	require.Eventually(s, condition, 20*time.Second, 10*time.Millisecond)
}

// until waits until the history has what is wanted.
func (s *scene) until(enough func(*history.History) bool) *history.History {
	s.Helper()
	var h *history.History
	s.await(func() bool {
		h = s.read()
		return enough(h)
	})
	return h
}

// serve serves the result of page until the test ends.
func serve(t *testing.T, page http.HandlerFunc) string {
	t.Helper()
	server := httptest.NewServer(page)
	t.Cleanup(server.Close)
	return server.URL
}

func TestConfigIsChecked(t *testing.T) {
	assert.ErrorContains(t, Run(t.Context(), Config{}), "required")
}
