package manifests_test

import (
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"

	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/internal/program/programtest"
)

func intText(i int32) string { return strconv.Itoa(int(i)) }

// flagsOf returns a container's flags by name. An argument that is none fails
// the test.
func flagsOf(t *testing.T, c corev1.Container) map[string]string {
	t.Helper()
	flags := map[string]string{}
	for _, arg := range c.Args {
		name, found := strings.CutPrefix(arg, "--")
		require.True(t, found, "%s: %s", c.Name, arg)
		name, value, _ := strings.Cut(name, "=")
		require.NotContains(t, flags, name, c.Name)
		flags[name] = value
	}
	return flags
}

var built struct {
	once sync.Once
	dir  string
	err  error
}

// program builds our processes, once, and returns the path of one.
func program(t *testing.T, name string) string {
	t.Helper()
	built.once.Do(func() {
		built.dir = scratch(t)
		built.err = programtest.Build(built.dir, "../cmd/webhooks", "../cmd/prober", "../cmd/discovery", "../cmd/cloud")
	})
	require.NoError(t, built.err)
	return filepath.Join(built.dir, name)
}

// Every flag in the manifests is one of the program's.
func TestFlagsExist(t *testing.T) {
	known := map[string]string{}
	for name, all := range renderAll(t) {
		for _, workload := range all.workloads() {
			for _, c := range podSpec(t, workload).Containers {
				if known[c.Name] == "" {
					help, err := exec.Command(program(t, c.Name), "--help").CombinedOutput()
					require.NoError(t, err, string(help))
					known[c.Name] = string(help)
				}
				for flag := range flagsOf(t, c) {
					assert.Regexp(t, `(?m)^  --`+regexp.QuoteMeta(flag)+` `, known[c.Name], "%s: %s", name, c.Name)
				}
				for _, env := range c.Env {
					assert.Contains(t, known[c.Name], env.Name, "%s: %s", name, c.Name)
				}
			}
		}
	}
}
