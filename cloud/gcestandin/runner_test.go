package gcestandin

import (
	"context"
	"log/slog"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func testRunner(t *testing.T, command string) *CommandRunner {
	t.Helper()
	r, err := NewCommandRunner(command, netip.MustParsePrefix("127.77.3.0/24"), t.TempDir(), slog.New(slog.DiscardHandler))
	require.NoError(t, err)
	return r
}

func TestCommandRunnerRunsAProcessPerVM(t *testing.T) {
	r := testRunner(t, "/bin/sh {{.UserData}} {{.IP}} {{.Port}} {{.Name}}")
	s := New(Options{Runner: r})
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() { defer close(done); s.Run(ctx) }()

	vm := machine("a")
	vm.Metadata = metadata("user-data", "echo $$ $* > out.tmp; mv out.tmp out; exec sleep 1000", "crawl-port", "3128")
	id, err := s.Add(zoneB, vm)
	require.NoError(t, err)
	out := filepath.Join(r.dir, "a-"+id, "out")
	require.Eventually(t, func() bool { _, err := os.Stat(out); return err == nil }, 10*time.Second, 20*time.Millisecond)
	text, err := os.ReadFile(out)
	require.NoError(t, err)
	fields := strings.Fields(string(text))
	assert.Equal(t, []string{"127.77.3.1", "3128", "a"}, fields[1:])
	alive := func() bool {
		p := r.procs[place{zoneB, "a"}]
		return p != nil && p.Signal(syscall.Signal(0)) == nil
	}
	r.mu.Lock()
	assert.True(t, alive())
	p := r.procs[place{zoneB, "a"}]
	r.mu.Unlock()

	require.NoError(t, s.Preempt(zoneB, "a"))
	<-p.Done()
	require.NoError(t, s.SetStatus(zoneB, "a", ""))
	require.Eventually(t, func() bool { r.mu.Lock(); defer r.mu.Unlock(); return alive() }, 10*time.Second, 20*time.Millisecond, "it runs again")

	cancel()
	<-done
	r.Wait()
	assert.Empty(t, r.procs, "nothing outlives the server")
}

func TestCommandRunnerReturnsStartErrors(t *testing.T) {
	r := testRunner(t, "/no/such/program")
	err := r.Start(VM{Name: "a", Zone: zoneB, Metadata: map[string]string{}})
	assert.ErrorContains(t, err, "/no/such/program")
	r.Stop(zoneB, "a")
}

func TestCommandRunnerAddresses(t *testing.T) {
	r := testRunner(t, "true")
	assert.Equal(t, "127.77.3.1", r.Address(1))
	assert.Equal(t, "127.77.3.254", r.Address(254))
	assert.Equal(t, "127.77.3.1", r.Address(255), "from the beginning")
	wide, err := NewCommandRunner("true", netip.MustParsePrefix("127.8.0.0/16"), "", nil)
	require.NoError(t, err)
	assert.Equal(t, "127.8.1.0", wide.Address(256))
}

func TestNewCommandRunnerRefuses(t *testing.T) {
	ok := netip.MustParsePrefix("127.1.2.0/24")
	for name, tt := range map[string]struct {
		command string
		subnet  netip.Prefix
		want    string
	}{
		"nothing":      {" ", ok, "empty"},
		"template":     {"x {{.IP", ok, "{{.IP"},
		"field":        {"x {{.Address}}", ok, "Address"},
		"not loopback": {"x", netip.MustParsePrefix("10.0.0.0/24"), "within 127.0.0.0/8"},
		"too narrow":   {"x", netip.MustParsePrefix("127.0.0.0/30"), "/8 to /24"},
		"too wide":     {"x", netip.MustParsePrefix("0.0.0.0/0"), "within 127.0.0.0/8"},
	} {
		_, err := NewCommandRunner(tt.command, tt.subnet, "", nil)
		assert.ErrorContains(t, err, tt.want, name)
	}
}
