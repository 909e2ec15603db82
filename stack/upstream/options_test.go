package upstream

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestParseStrategy(t *testing.T) {
	for name, want := range map[string]Strategy{"": DynamicApply, "dynamic-apply": DynamicApply, "server-side-apply": ServerSideApply} {
		got, err := ParseStrategy(name)
		require.NoError(t, err)
		assert.Equal(t, want, got)
	}
	for _, name := range []string{"Dynamic-Apply", "ssa", " "} {
		_, err := ParseStrategy(name)
		assert.ErrorContains(t, err, "want dynamic-apply or server-side-apply")
	}
}

func TestArgs(t *testing.T) {
	args := Options{Kubeconfig: "/k", Strategy: ServerSideApply, MetricsAddr: "127.1.2.1:1", HealthAddr: "127.1.2.1:2", Workers: 3}.Args()
	for _, want := range []string{
		"--kubeconfig=/k", "--apply-strategy=server-side-apply", "--workers=3", "--leader-election=false",
		"--metrics-address=127.1.2.1:1", "--health-probe-bind-address=127.1.2.1:2",
	} {
		assert.Contains(t, args, want)
	}
}

// Metacontroller's own defaults would listen on all addresses.
func TestArgsDefaults(t *testing.T) {
	args := Options{}.Args()
	for _, want := range []string{"--apply-strategy=dynamic-apply", "--workers=20", "--metrics-address=0", "--health-probe-bind-address=0"} {
		assert.Contains(t, args, want)
	}
}

func TestFind(t *testing.T) {
	program := filepath.Join(t.TempDir(), "mc")
	require.NoError(t, os.WriteFile(program, nil, 0o700))
	t.Chdir(filepath.Dir(program))
	for _, name := range []string{program, "./mc"} {
		path, err := Find(name)
		require.NoError(t, err)
		assert.Equal(t, program, path)
	}
	_, err := Find(program + "-of-yesterday")
	assert.ErrorContains(t, err, program+"-of-yesterday")
	assert.ErrorContains(t, err, "to run the stand-in")
}
