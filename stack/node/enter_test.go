package node

import (
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// stranger is a user that owns nothing here.
func stranger() *syscall.Credential { return &syscall.Credential{Uid: 64999, Gid: 64999} }

func TestCanEnterNamesTheBlockingFolder(t *testing.T) {
	root := rootFolder(t)
	require.NoError(t, MakeRoot(root))
	require.NoError(t, canEnter(root, stranger()))

	private := filepath.Dir(root)
	require.NoError(t, os.Chmod(private, 0o700))
	err := canEnter(root, stranger())
	require.ErrorIs(t, err, ErrNotEntered)
	assert.ErrorContains(t, err, "chmod o+x "+private)
	assert.NoError(t, canEnter(root, nil), "we can")
	assert.NoError(t, canEnter(root, &syscall.Credential{}), "root can")
	me := &syscall.Credential{Uid: uint32(os.Getuid()), Gid: uint32(os.Getgid())}
	assert.NoError(t, canEnter(root, me), "its owner can")

	require.NoError(t, os.Chmod(private, 0o710))
	assert.NoError(t, canEnter(root, &syscall.Credential{Uid: 64999, Gid: me.Gid}), "its group can")
	require.NoError(t, os.Chmod(private, 0o701))
	assert.ErrorIs(t, canEnter(root, &syscall.Credential{Uid: 64999, Gid: me.Gid}), ErrNotEntered, "the group's bits decide for its members")
}

func TestCanEnterFollowsLinks(t *testing.T) {
	root := rootFolder(t)
	require.NoError(t, MakeRoot(root))
	link := filepath.Join(rootFolder(t) + "-link")
	require.NoError(t, os.Symlink(root, link))
	require.NoError(t, canEnter(link, stranger()))
	require.NoError(t, os.Chmod(root, 0o700))
	assert.ErrorIs(t, canEnter(link, stranger()), ErrNotEntered)
	assert.ErrorIs(t, canEnter(root+"-missing", stranger()), os.ErrNotExist)
}

// TestMakeRootIgnoresTheUmask changes the umask of the process, and so is not
// parallel to anything.
func TestMakeRootIgnoresTheUmask(t *testing.T) {
	root := rootFolder(t)
	old := syscall.Umask(0o077)
	err := MakeRoot(root)
	syscall.Umask(old)
	require.NoError(t, err)
	info, err := os.Stat(root)
	require.NoError(t, err)
	assert.Equal(t, os.FileMode(RootMode), info.Mode().Perm())

	require.NoError(t, os.Chmod(root, 0o755))
	require.NoError(t, MakeRoot(root))
	info, err = os.Stat(root)
	require.NoError(t, err)
	assert.Equal(t, os.FileMode(0o755), info.Mode().Perm(), "one that is there stays as it is")

	file := filepath.Join(root, "file")
	require.NoError(t, os.WriteFile(file, nil, 0o600))
	require.Error(t, MakeRoot(file))
}

func TestNodeRejectsRootThatProxiesCannotEnter(t *testing.T) {
	root := rootFolder(t)
	require.NoError(t, os.Chmod(filepath.Dir(root), 0o700))
	n := &Node{cfg: Config{Root: root, Launcher: &Launcher{Credential: stranger()}}}
	err := n.Run(t.Context())
	require.ErrorIs(t, err, ErrNotEntered)
}
