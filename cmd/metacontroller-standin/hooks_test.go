package main

import (
	"io"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/metacontroller/install/certs"
)

func TestHookFiles(t *testing.T) {
	dir := t.TempDir()
	write := func(name, content string) string {
		path := filepath.Join(dir, name)
		require.NoError(t, os.WriteFile(path, []byte(content), 0o600))
		return path
	}
	opts := certs.DefaultOptions()
	opts.Dir = filepath.Join(dir, "tls")
	_, err := certs.Ensure(opts, time.Now())
	require.NoError(t, err)
	ca := filepath.Join(opts.Dir, certs.FileCACert)

	o, err := parseOptions([]string{"--controller-file", "c.yaml", "--hook-ca", ca, "--hook-token-file", write("token", " canary \nolder\n")}, io.Discard)
	require.NoError(t, err)
	assert.NotNil(t, o.hookCA)
	assert.Equal(t, "canary", o.hookToken)

	for flag, file := range map[string]string{
		"--hook-ca": write("no-ca", "nothing"), "--hook-token-file": write("empty", "\ncanary"),
	} {
		for _, path := range []string{file, filepath.Join(dir, "no-such")} {
			_, err := parseOptions([]string{"--controller-file", "c.yaml", flag, path}, io.Discard)
			require.ErrorContains(t, err, flag)
			assert.NotContains(t, err.Error(), "canary")
		}
	}
}
