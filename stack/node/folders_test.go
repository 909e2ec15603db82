package node

import (
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/types"
)

func TestServiceNameIsValidForSquid(t *testing.T) {
	a := newPodDir("/tmp/x", "93e4fd2c-e53b-4fb3-8482-799bec7619da").service()
	b := newPodDir("/tmp/x", "93e4fd2c-e53b-4fb3-8482-799bec7619db").service()
	assert.Regexp(t, `^[a-z0-9]{1,32}$`, a)
	assert.NotEqual(t, a, b)
	assert.Equal(t, a, newPodDir("/elsewhere", "93e4fd2c-e53b-4fb3-8482-799bec7619da").service())
}

func TestPrepareRemovesStaleFiles(t *testing.T) {
	dir := newPodDir(t.TempDir(), "1")
	segment := filepath.Join(sharedMemory, dir.service()+"-cf__queues.shm")
	require.NoError(t, dir.prepare("first", nil))
	for _, f := range []string{filepath.Join(dir.run(), "squid.pid"), dir.accessLog(), segment} {
		require.NoError(t, os.WriteFile(f, []byte("x"), 0o600))
	}

	require.NoError(t, dir.prepare("second", nil))

	assert.NoFileExists(t, filepath.Join(dir.run(), "squid.pid"))
	assert.NoFileExists(t, segment)
	assert.FileExists(t, dir.accessLog())
	content, err := os.ReadFile(dir.config())
	require.NoError(t, err)
	assert.Equal(t, "second", string(content))

	require.NoError(t, os.WriteFile(segment, []byte("x"), 0o600))
	require.NoError(t, dir.remove())
	assert.NoDirExists(t, string(dir))
	assert.NoFileExists(t, segment)
	require.NoError(t, dir.remove(), "removing twice is fine")
}

func TestPrepareChangesTheOwner(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root can give files away")
	}
	dir := newPodDir(t.TempDir(), "1")
	require.NoError(t, dir.prepare("x", &syscall.Credential{Uid: 13, Gid: 13}))
	for _, path := range []string{string(dir), dir.run(), dir.config()} {
		info, err := os.Stat(path)
		require.NoError(t, err)
		assert.Equal(t, uint32(13), info.Sys().(*syscall.Stat_t).Uid, path)
		assert.Zero(t, info.Mode().Perm()&0o077, "%s is for its owner alone", path)
	}
}

func TestPrepareErrorNamesThePath(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	require.NoError(t, os.WriteFile(file, nil, 0o600))
	require.ErrorContains(t, newPodDir(file, "1").prepare("x", nil), file)
}

func TestRemoveFolders(t *testing.T) {
	root := t.TempDir()
	for _, name := range []string{"pod-a", "pod-b", "other"} {
		require.NoError(t, os.MkdirAll(filepath.Join(root, name, "run"), 0o700))
	}
	require.NoError(t, os.WriteFile(filepath.Join(root, "pod-file"), nil, 0o600))

	require.NoError(t, RemoveFolders(root, func(uid types.UID) bool { return uid == "b" }))

	assert.NoDirExists(t, filepath.Join(root, "pod-a"))
	assert.DirExists(t, filepath.Join(root, "pod-b"))
	assert.DirExists(t, filepath.Join(root, "other"))
	assert.FileExists(t, filepath.Join(root, "pod-file"))
	require.NoError(t, RemoveFolders(filepath.Join(root, "missing"), nil))
}
