// Package controlplanetest gives tests a real API server.
package controlplanetest

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"sync"
	"testing"

	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/stack/controlplane"
)

// RequireEnv set to "1" makes a test fail instead of skip when the control plane is not built. CI
// sets it.
const RequireEnv = "PX_REQUIRE_ASSETS"

// Assets returns the control plane's programs. When they are not built it skips the test, or fails
// it with RequireEnv: a test must not build for minutes.
func Assets(t testing.TB) controlplane.Assets {
	t.Helper()
	assets, err := controlplane.Locate(context.Background())
	switch {
	case err == nil:
		return assets
	case errors.Is(err, controlplane.ErrNotBuilt) && os.Getenv(RequireEnv) != "1":
		t.Skipf("needs a real API server: %v", err)
	default:
		t.Fatalf("needs a real API server: %v", err)
	}
	return controlplane.Assets{}
}

// Start returns a control plane of the test's own, stopped when the test ends.
func Start(t testing.TB) *controlplane.ControlPlane {
	t.Helper()
	cp, err := start(Assets(t), t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := cp.Stop(); err != nil {
			t.Error(err)
		}
	})
	return cp
}

// Shared is one control plane for all tests of a package, started by the first
// that needs it. TestMain stops it, see Main. The zero value is ready to use.
type Shared struct {
	once sync.Once
	dir  string
	cp   *controlplane.ControlPlane
	err  error
}

// Get returns the control plane, skipping or failing as Assets does.
func (s *Shared) Get(t testing.TB) *controlplane.ControlPlane {
	t.Helper()
	assets := Assets(t)
	s.once.Do(func() {
		if s.dir, s.err = os.MkdirTemp("", "controlplane-*"); s.err == nil {
			s.cp, s.err = start(assets, s.dir)
		}
	})
	if s.err != nil {
		t.Fatal(s.err)
	}
	return s.cp
}

// Stop stops what Get started, if anything, and removes its files.
func (s *Shared) Stop() error {
	var err error
	if s.cp != nil {
		err = s.cp.Stop()
	}
	if s.dir != "" {
		err = errors.Join(err, os.RemoveAll(s.dir))
	}
	return err
}

// Main runs the tests of a package and then stops its control plane, before a check for leaked
// goroutines.
type Main struct {
	m      *testing.M
	shared *Shared
}

// Main returns m for goleak:
//
//	func TestMain(m *testing.M) { goleak.VerifyTestMain(shared.Main(m)) }
func (s *Shared) Main(m *testing.M) Main { return Main{m, s} }

// Run returns the exit code, which is not 0 when the control plane did not stop.
func (m Main) Run() int {
	code := m.m.Run()
	if err := m.shared.Stop(); err != nil {
		fmt.Fprintln(os.Stderr, "stop the control plane:", err)
		return max(code, 1)
	}
	return code
}

func start(assets controlplane.Assets, dir string) (*controlplane.ControlPlane, error) {
	return controlplane.Start(context.Background(), controlplane.Config{
		Dir:    filepath.Join(dir, "controlplane"),
		Addr:   Addr(),
		Assets: assets,
		Log:    slog.New(slog.NewTextHandler(io.Discard, nil)),
	})
}

// Addr returns a loopback address for this test process, so that the tests of
// several packages can run at the same time without sharing ports.
func Addr() string {
	pid := os.Getpid()
	return fmt.Sprintf("127.99.%d.%d", pid>>7&0xff, 1+pid&0x7f)
}

// FreeAddr returns a free HOST:PORT. It is on Addr, where no other process takes it before the test
// does: for programs that cannot pick a free port.
func FreeAddr(t testing.TB) string {
	t.Helper()
	ln, err := net.Listen("tcp", net.JoinHostPort(Addr(), "0"))
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	return ln.Addr().String()
}
