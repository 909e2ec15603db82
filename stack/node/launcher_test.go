package node

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func executable(t *testing.T, dir, name string) string {
	t.Helper()
	path := filepath.Join(dir, name)
	require.NoError(t, os.WriteFile(path, []byte("#!/bin/sh\n"), 0o755))
	return path
}

func TestFindLauncher(t *testing.T) {
	dir := t.TempDir()
	connectProxy, squid := executable(t, dir, "connectproxy"), executable(t, dir, "squid")
	t.Setenv("PATH", dir)

	l, err := FindLauncher(SquidBuiltin, connectProxy)
	require.NoError(t, err)
	assert.Equal(t, &Launcher{Name: "built-in proxy", Path: connectProxy, Builtin: true}, l)
	_, err = l.args(newPodDir("/r", "1"), "")
	require.ErrorIs(t, err, errForeignConfig)

	for _, choice := range []string{SquidAuto, squid} {
		l, err = FindLauncher(choice, connectProxy)
		require.NoError(t, err)
		assert.Equal(t, squid, l.Path)
		assert.False(t, l.Builtin)
		assert.Equal(t, os.Geteuid() == 0, l.Credential != nil, "root gives its power up")
		args, err := l.args(newPodDir("/r", "1"), "")
		require.NoError(t, err)
		assert.Contains(t, args, "-N")
	}
}

func TestFindLauncherSaysWhatIsMissing(t *testing.T) {
	dir := t.TempDir()
	_, err := FindLauncher(filepath.Join(dir, "squid"), "")
	require.ErrorContains(t, err, "--squid")
	require.ErrorIs(t, err, os.ErrNotExist)
	_, err = FindLauncher(SquidBuiltin, filepath.Join(dir, "connectproxy"))
	require.ErrorContains(t, err, "--connect-proxy")
	require.ErrorContains(t, err, "make build")
	require.NoError(t, os.WriteFile(filepath.Join(dir, "connectproxy"), nil, 0o644))
	_, err = FindLauncher(SquidBuiltin, filepath.Join(dir, "connectproxy"))
	require.ErrorIs(t, err, os.ErrPermission, "it is there and cannot be executed")
}

func TestUnprivileged(t *testing.T) {
	c, err := unprivileged("no-such-user", "nobody")
	require.NoError(t, err)
	assert.NotZero(t, c.Uid)
	assert.NotZero(t, c.Gid)
	_, err = unprivileged("no-such-user", "nor-this-one")
	require.ErrorContains(t, err, "nor-this-one")
}
