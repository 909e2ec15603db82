package manifests_test

import (
	"maps"
	"os"
	"os/exec"
	"slices"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"

	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/internal/program/programtest"
)

// patience is how long something may take on a machine that is busy with other
// tests.
const patience = time.Minute

// daemon is one of our processes as its own program, run with the flags of its
// container.
type daemon struct {
	programtest.Output
	stop func()
}

// startContainer runs a container of a workload until the test ends. flags
// replace those of the manifest that make no sense outside of a Pod: addresses,
// mounted files.
func startContainer(t *testing.T, c corev1.Container, flags map[string]string, env ...string) *daemon {
	t.Helper()
	all := flagsOf(t, c)
	maps.Copy(all, flags)
	var args []string
	for _, name := range slices.Sorted(maps.Keys(all)) {
		if all[name] == "" {
			args = append(args, "--"+name)
			continue
		}
		args = append(args, "--"+name+"="+all[name])
	}
	d := &daemon{}
	cmd := exec.Command(program(t, c.Name), args...)
	cmd.Env, cmd.Stdout, cmd.Stderr = append(os.Environ(), env...), &d.Output, &d.Output
	require.NoError(t, cmd.Start())
	d.stop = sync.OnceFunc(func() {
		_ = cmd.Process.Signal(syscall.SIGTERM)
		assert.NoError(t, cmd.Wait(), "%s ends in order: %s", c.Name, &d.Output)
	})
	t.Cleanup(d.stop)
	return d
}

// container returns a container of a workload by name.
func (all objects) container(t *testing.T, workload, name string) corev1.Container {
	t.Helper()
	for _, c := range podSpec(t, all.workloads().named(t, workload)).Containers {
		if c.Name == name {
			return c
		}
	}
	require.Fail(t, "no such container", "%s of %s", name, workload)
	return corev1.Container{}
}

func eventually(t *testing.T, what string, condition func() bool, also ...any) {
	t.Helper()
	for until := time.Now().Add(patience); !condition(); time.Sleep(50 * time.Millisecond) {
		if time.Now().After(until) {
			require.Fail(t, "never: "+what, also...)
		}
	}
}

// scratch is a folder that lives as long as the tests of this package.
func scratch(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "manifests-*")
	require.NoError(t, err)
	removeAtEnd = append(removeAtEnd, dir)
	return dir
}
