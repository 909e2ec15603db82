package controlplane

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
)

// roleEnv makes the test binary play another process, which the test then
// kills.
const roleEnv = "PX_TEST_ROLE"

func TestMain(m *testing.M) {
	switch os.Getenv(roleEnv) {
	case "":
		goleak.VerifyTestMain(m)
	case "builder":
		fmt.Println(Ensure(context.Background(), os.Stdout))
	case "stack":
		playStack()
	}
}

// playStack runs a control plane, prints the pids of its programs and waits to be
// killed.
func playStack() {
	cp, err := Start(context.Background(), Config{Dir: os.Getenv("PX_TEST_DIR"), Addr: "127.41.7.9", Log: quiet()})
	if err != nil {
		fmt.Println("error", err)
		return
	}
	fmt.Println("pids", cp.etcd.Current().PID(), cp.apiServer.Current().PID())
	<-cp.Done()
}

func quiet() *slog.Logger { return slog.New(slog.NewTextHandler(io.Discard, nil)) }

// writeScript makes an executable shell script.
func writeScript(t *testing.T, path, body string) {
	t.Helper()
	require.NoError(t, os.WriteFile(path, []byte("#!/bin/sh\n"+body+"\n"), 0o755))
}

func epoch() time.Time { return time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC) }

// alive is false for zombies as well: in a container orphans may not be reaped.
func alive(pid string) bool {
	stat, err := os.ReadFile("/proc/" + pid + "/stat")
	if err != nil {
		return false
	}
	_, state, _ := strings.Cut(string(stat), ") ")
	return !strings.HasPrefix(state, "Z") && !strings.HasPrefix(state, "X")
}

// runningIn returns the pids of processes whose command line names dir.
func runningIn(t *testing.T, dir string) []string {
	t.Helper()
	paths, err := filepath.Glob("/proc/[0-9]*/cmdline")
	require.NoError(t, err)
	var pids []string
	for _, path := range paths {
		line, err := os.ReadFile(path)
		if pid := filepath.Base(filepath.Dir(path)); err == nil && strings.Contains(string(line), dir) && alive(pid) {
			pids = append(pids, pid)
		}
	}
	return pids
}
