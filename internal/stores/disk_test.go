package stores

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	goredis "github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestRedisKeepsWhatItAcknowledged(t *testing.T) {
	dir, err := os.MkdirTemp("", "chaos-redis")
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, os.RemoveAll(dir)) })
	r, err := StartRedis(t.Context(), dir, "appendonly yes", "appendfsync always")
	if errors.Is(err, ErrNoRedis) && os.Getenv("PX_REQUIRE_REDIS") != "1" {
		t.Skip(err)
	}
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, r.Stop()) })
	client := goredis.NewClient(&goredis.Options{Network: "unix", Addr: filepath.Join(dir, "s"), MaxRetries: -1})
	defer client.Close()
	require.NoError(t, client.Set(t.Context(), "a", "1", 0).Err())

	before := r.process.Load().PID()
	require.NoError(t, r.Kill())
	require.Error(t, client.Ping(t.Context()).Err())
	require.NoError(t, r.Start(t.Context()))
	assert.NotEqual(t, before, r.process.Load().PID())
	assert.Equal(t, "1", client.Get(t.Context(), "a").Val())

	require.NoError(t, r.Signal(syscall.SIGSTOP))
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	require.Error(t, client.Ping(ctx).Err())
	require.NoError(t, r.Signal(syscall.SIGCONT))
	assert.NoError(t, client.Ping(t.Context()).Err())
}

func TestDiskFillsForOthersToo(t *testing.T) {
	d, err := NewDisk(256 << 10)
	if errors.Is(err, syscall.EPERM) {
		t.Skip("needs root: ", err)
	}
	require.NoError(t, err)
	defer func() { assert.NoError(t, d.Close()) }()
	write := func() error {
		return exec.CommandContext(t.Context(), "/bin/sh", "-c", "head -c 100000 /dev/zero > "+d.Path()+"/file").Run()
	}
	require.NoError(t, write())
	require.NoError(t, os.Remove(filepath.Join(d.Path(), "file")))
	require.NoError(t, d.Fill())
	require.NoError(t, d.Fill(), "again changes nothing")
	require.Error(t, write())
	require.NoError(t, d.Free())
	require.NoError(t, d.Free())
	require.NoError(t, write())
	mounts, err := os.ReadFile("/proc/self/mounts")
	require.NoError(t, err)
	assert.NotContains(t, string(mounts), d.Path())
}

func TestLimitFiles(t *testing.T) {
	cmd := exec.CommandContext(t.Context(), "/bin/sh", "-c", "trap '' XFSZ; read go; echo 123456789 > "+filepath.Join(t.TempDir(), "file"))
	in, err := cmd.StdinPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	require.NoError(t, LimitFiles(cmd.Process.Pid, 5))
	_, err = in.Write([]byte("go\n"))
	require.NoError(t, err)
	require.Error(t, cmd.Wait(), "the file is too large")
	assert.Error(t, LimitFiles(cmd.Process.Pid, 0), "it is gone")
}
