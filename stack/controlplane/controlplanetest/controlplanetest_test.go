package controlplanetest

import (
	"fmt"
	"net"
	"os"
	"runtime"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/stack/controlplane"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// recorder is a test that notes how it was ended.
type recorder struct {
	testing.TB
	skipped, failed string
}

func (*recorder) Helper() {}
func (r *recorder) Skipf(format string, args ...any) {
	r.skipped = fmt.Sprintf(format, args...)
	runtime.Goexit()
}
func (r *recorder) Fatalf(format string, args ...any) {
	r.failed = fmt.Sprintf(format, args...)
	runtime.Goexit()
}

func record(body func(t testing.TB)) *recorder {
	r := &recorder{}
	finished := make(chan struct{})
	go func() {
		defer close(finished)
		body(r)
	}()
	<-finished
	return r
}

func TestAssetsNotBuilt(t *testing.T) {
	t.Setenv(controlplane.AssetsEnv, "")
	t.Setenv(controlplane.CacheEnv, t.TempDir())
	t.Setenv("PATH", t.TempDir())

	t.Setenv(RequireEnv, "")
	r := record(func(t testing.TB) { Assets(t) })
	assert.Contains(t, r.skipped, "make assets", "a skip says how not to skip")
	assert.Empty(t, r.failed)

	t.Setenv(RequireEnv, "1")
	r = record(func(t testing.TB) { Assets(t) })
	assert.Contains(t, r.failed, "make assets")
	assert.Empty(t, r.skipped, "CI must not skip")
}

func TestAssetsBroken(t *testing.T) {
	t.Setenv(controlplane.AssetsEnv, t.TempDir())
	t.Setenv(RequireEnv, "")
	r := record(func(t testing.TB) { Assets(t) })
	assert.Contains(t, r.failed, "lacks", "a wrong setting is never a skip")
}

func TestAddrIsLoopback(t *testing.T) {
	ip := net.ParseIP(Addr())
	require.NotNil(t, ip, Addr())
	assert.True(t, ip.IsLoopback())
}

func TestSharedStopsWhatItStarted(t *testing.T) {
	var unused Shared
	require.NoError(t, unused.Stop(), "nothing was started")

	var s Shared
	cp := s.Get(t)
	assert.Same(t, cp, s.Get(t))
	require.NoError(t, s.Stop())
	<-cp.Done()
	_, err := os.Stat(cp.Kubeconfig())
	assert.ErrorIs(t, err, os.ErrNotExist)
}

func TestStartIsStoppedWithItsTest(t *testing.T) {
	var cp *controlplane.ControlPlane
	t.Run("inner", func(t *testing.T) { cp = Start(t) })
	if cp == nil {
		t.Skip("the inner test was skipped")
	}
	<-cp.Done()
	assert.NoError(t, cp.Err())
}
