package webhooks

import (
	"flag"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

// update rewrites the golden files: go test ./webhooks -update
var update = flag.Bool("update", false, "rewrite the golden files under testdata")

// golden compares got with the file testdata/name.
func golden(t *testing.T, name string, got []byte) {
	t.Helper()
	path := filepath.Join("testdata", name)
	if *update {
		require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o755))
		require.NoError(t, os.WriteFile(path, got, 0o644))
	}
	want, err := os.ReadFile(path)
	require.NoError(t, err, "run go test ./webhooks -update and review the new file")
	require.Equal(t, string(want), string(got), "%s differs; if that is meant, run go test ./webhooks -update", path)
}
