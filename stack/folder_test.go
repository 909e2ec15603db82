package stack

import (
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/stack/node"
)

func TestFolderIsRemovedWithItsStack(t *testing.T) {
	home := t.TempDir()
	f, err := newFolder(home)
	require.NoError(t, err)
	_, err = f.sub("logs")
	require.NoError(t, err)
	require.NoError(t, f.remove())
	left, err := os.ReadDir(home)
	require.NoError(t, err)
	assert.Empty(t, left)
}

func TestSweepRemovesOnlyStaleFolders(t *testing.T) {
	home := t.TempDir()
	live, err := newFolder(home)
	require.NoError(t, err)
	dead, err := newFolder(home)
	require.NoError(t, err)
	_, err = dead.write("kubeconfig", []byte("secret"))
	require.NoError(t, err)
	require.NoError(t, dead.lock.Release(), "as the kernel does when a process dies")

	next, err := newFolder(home)
	require.NoError(t, err)
	assert.NoDirExists(t, dead.path)
	assert.NoFileExists(t, dead.path+lockSuffix)
	assert.DirExists(t, live.path)
	require.NoError(t, next.remove())
	require.NoError(t, live.remove())
}

// A campaign that is killed leaves its Redis's folder.
func TestSweepRemovesStaleScratchFolders(t *testing.T) {
	home := t.TempDir()
	dead, err := NewScratch(home)
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(filepath.Join(dead.Path(), "redis.conf"), nil, 0o600))
	info, err := os.Stat(dead.Path())
	require.NoError(t, err)
	assert.Equal(t, os.FileMode(0o700), info.Mode().Perm())
	live, err := NewScratch(home)
	require.NoError(t, err)
	require.NoError(t, dead.folder.lock.Release(), "as the kernel does when a process dies")

	next, err := newFolder(home)
	require.NoError(t, err)
	assert.NoDirExists(t, dead.Path())
	assert.DirExists(t, live.Path())
	require.NoError(t, next.remove())
	require.NoError(t, live.Remove())
	left, err := os.ReadDir(home)
	require.NoError(t, err)
	assert.Empty(t, left)
}

func TestWrittenFilesAreReadableForTheOwnerOnly(t *testing.T) {
	f, err := newFolder(t.TempDir())
	require.NoError(t, err)
	defer func() { assert.NoError(t, f.remove()) }()
	path, err := f.write("kubeconfig", []byte("secret"))
	require.NoError(t, err)
	info, err := os.Stat(path)
	require.NoError(t, err)
	assert.Equal(t, os.FileMode(0o600), info.Mode().Perm())
}

// TestFoldersAreEnterableWithAnyUmask changes the umask of the process, and so is not
// parallel to anything.
func TestFoldersAreEnterableWithAnyUmask(t *testing.T) {
	home := filepath.Join(t.TempDir(), "stacks")
	old := syscall.Umask(0o077)
	f, err := newFolder(home)
	var pods string
	if err == nil {
		pods, err = f.sub("pods")
	}
	syscall.Umask(old)
	require.NoError(t, err)
	defer func() { assert.NoError(t, f.remove()) }()
	for _, path := range []string{home, f.path, pods} {
		info, err := os.Stat(path)
		require.NoError(t, err)
		assert.Equal(t, os.FileMode(node.RootMode), info.Mode().Perm(), path)
	}
}

func TestNewFolderRejectsForeignHome(t *testing.T) {
	file := filepath.Join(t.TempDir(), "home")
	require.NoError(t, os.WriteFile(file, nil, 0o600))
	_, err := newFolder(file)
	require.Error(t, err)

	link := filepath.Join(t.TempDir(), "link")
	require.NoError(t, os.Symlink(t.TempDir(), link))
	_, err = newFolder(link)
	assert.ErrorContains(t, err, "is not a folder of ours")
}

func TestStartNamesEveryMissingProgram(t *testing.T) {
	cfg := Config{BinDir: t.TempDir()}
	_, err := Start(t.Context(), cfg)
	for _, name := range cfg.programs() {
		assert.ErrorContains(t, err, "program "+name)
	}
	assert.ErrorContains(t, err, "make build")
}

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }
