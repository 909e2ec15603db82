package witness

import (
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/stack/chaos/history"
)

const oneVM = `[{"zone":"z","name":"proxy-a","id":"%d","status":"RUNNING","ip":"127.1.1.1","labels":{"crawl-proxy-uid":"u","crawl-spec-hash":"v1-h"},"metadata":{"user-data":"long"},"created":"2026-01-01T00:00:00Z"}]`

// TestVMTable: a table is recorded when it changes, and the time when there was
// none to see.
func TestVMTable(t *testing.T) {
	var id, away atomic.Int64
	id.Store(1)
	s := newScene(t)
	s.cfg.VMsURL = serve(t, func(w http.ResponseWriter, _ *http.Request) {
		if id.Load() == 0 {
			away.Add(1)
			http.Error(w, "away", http.StatusBadGateway)
			return
		}
		fmt.Fprintf(w, oneVM, id.Load())
	})
	s.run()
	h := s.until(func(h *history.History) bool { return len(h.VMs) == 1 })
	assert.Equal(t, []history.VM{{ID: "1", Name: "proxy-a", Zone: "z", UID: "u", SpecHash: "v1-h", State: "RUNNING", IP: "127.1.1.1"}}, h.VMs[0].VMs)
	id.Store(0)
	s.await(func() bool { return away.Load() > 2 })
	id.Store(2)
	h = s.until(func(h *history.History) bool { return len(h.VMs) == 2 })
	assert.LessOrEqual(t, h.VMs[1].Asked, h.VMs[1].At)
	assert.GreaterOrEqual(t, h.VMs[1].Confirmed, h.VMs[0].Asked)
	assert.Less(t, h.VMs[1].Confirmed, h.VMs[1].Asked)
	gaps := slices.DeleteFunc(h.Gaps, func(g history.Gap) bool { return g.Observer != "vms" })
	require.Len(t, gaps, 1)
	assert.Contains(t, gaps[0].Detail, "502")
}

// TestProcesses are found by their folder.
func TestProcesses(t *testing.T) {
	s := newScene(t)
	s.cfg.PodRoot, s.cfg.VMRoot = t.TempDir(), t.TempDir()
	podDir, vmDir := filepath.Join(s.cfg.PodRoot, "pod-uid-1", "run"), filepath.Join(s.cfg.VMRoot, "proxy-a-77")
	for _, dir := range []string{podDir, vmDir} {
		require.NoError(t, os.MkdirAll(dir, 0o755))
	}
	s.run()
	s.until(func(h *history.History) bool { return len(h.Processes) == 1 && len(h.Processes[0].Processes) == 0 })
	var started []*exec.Cmd
	for _, dir := range []string{podDir, vmDir} {
		c := exec.Command("sleep", "60")
		c.Dir = dir
		require.NoError(t, c.Start())
		started = append(started, c)
	}
	stop := func() {
		for _, c := range started {
			_ = c.Process.Kill()
			_ = c.Wait()
		}
	}
	t.Cleanup(stop)
	h := s.until(func(h *history.History) bool { return len(h.Processes[len(h.Processes)-1].Processes) == 2 })
	seen := map[int]history.Process{}
	for _, p := range h.Processes[len(h.Processes)-1].Processes {
		seen[p.PID] = p
	}
	assert.Equal(t, "uid-1", seen[started[0].Process.Pid].Pod)
	assert.Equal(t, "proxy-a-77", seen[started[1].Process.Pid].VM)
	assert.Equal(t, "sleep", seen[started[1].Process.Pid].Name)
	assert.Positive(t, seen[started[1].Process.Pid].Started)
	stop()
	s.until(func(h *history.History) bool { return len(h.Processes[len(h.Processes)-1].Processes) == 0 })
}

// TestFigures of a real process, and of one that is not there.
func TestFigures(t *testing.T) {
	s := newScene(t)
	metrics := serve(t, func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprint(w, "# HELP go_goroutines x\n# TYPE go_goroutines gauge\ngo_goroutines 41\ngo_memstats_heap_inuse_bytes 1.5e+06\nproxy_operator_proxies{phase=\"Ready\"} 3\n")
	})
	s.cfg.Programs = func() []Program {
		return []Program{{Name: "us", PID: os.Getpid(), MetricsURL: metrics}, {Name: "plain", PID: os.Getpid()}, {Name: "gone"}}
	}
	s.run()
	h := s.until(func(h *history.History) bool { return len(h.Metrics) >= 2 && len(h.Pressure) >= 2 })
	m := h.Metrics[0]
	assert.Equal(t, []any{"us", os.Getpid(), 41, int64(1_500_000), 3}, []any{m.Process, m.PID, m.Goroutines, m.Heap, m.Series})
	assert.Positive(t, m.RSS)
	assert.Positive(t, m.FDs)
	assert.Positive(t, m.Started)
	assert.Equal(t, []any{"plain", -1, -1}, []any{h.Metrics[1].Process, h.Metrics[1].Goroutines, h.Metrics[1].Series})
	assert.Positive(t, h.Pressure[0].Over)
}

func TestParse(t *testing.T) {
	series, goroutines, heap := parseMetrics("a 1\nb{x=\"y z\"} NaN\n\n# c\n")
	assert.Equal(t, []any{2, -1, int64(-1)}, []any{series, goroutines, heap})
	_, err := parseVMs([]byte("<html>"))
	assert.Error(t, err)
}
