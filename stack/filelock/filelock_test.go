package filelock

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// holderEnv makes the test binary hold the lock at that path until it is
// killed.
const holderEnv = "PX_TEST_LOCK_HOLDER"

func TestMain(m *testing.M) {
	if path := os.Getenv(holderEnv); path != "" {
		if _, err := Try(path); err != nil {
			os.Exit(1)
		}
		_, _ = os.Stdout.WriteString("held")
		time.Sleep(time.Hour)
	}
	os.Exit(m.Run())
}

func TestOnlyOneHolder(t *testing.T) {
	path := filepath.Join(t.TempDir(), ".lock")
	l, err := Try(path)
	require.NoError(t, err)
	_, err = Try(path)
	require.ErrorIs(t, err, ErrHeld)
	require.ErrorContains(t, err, path)

	require.NoError(t, l.Release())
	again, err := Try(path)
	require.NoError(t, err)
	require.NoError(t, again.Release())
	require.Error(t, again.Release(), "it is given up already")
}

func TestLockIsFreeAfterAKilledHolder(t *testing.T) {
	path := filepath.Join(t.TempDir(), ".lock")
	holder := exec.Command(os.Args[0])
	holder.Env = append(os.Environ(), holderEnv+"="+path)
	out, err := holder.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, holder.Start())
	_, err = out.Read(make([]byte, 4))
	require.NoError(t, err)
	_, err = Try(path)
	require.ErrorIs(t, err, ErrHeld)

	require.NoError(t, holder.Process.Kill())
	require.Error(t, holder.Wait())

	l, err := Try(path)
	require.NoError(t, err)
	require.NoError(t, l.Release())
}

func TestFolderMissing(t *testing.T) {
	_, err := Try(filepath.Join(t.TempDir(), "missing", ".lock"))
	require.ErrorIs(t, err, os.ErrNotExist)
}
