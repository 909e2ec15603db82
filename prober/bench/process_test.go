package bench

import (
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/internal/process"
)

// patience bounds waiting for processes to come up.
const patience = time.Minute

// oneCore is the environment of whatever is measured.
func oneCore(extra ...string) []string {
	return append(append(os.Environ(), "GOMAXPROCS=1"), extra...)
}

// start runs a program until the benchmark ends.
func start(b *testing.B, dir, name, path string, env []string, args ...string) *process.Process {
	b.Helper()
	p, err := process.Start(process.Command{
		Name: name, Path: path, Args: args, Env: env, LogFile: filepath.Join(dir, name+".log"),
	})
	require.NoError(b, err)
	b.Cleanup(func() {
		_ = p.Signal(syscall.SIGCONT)
		require.NoError(b, p.Stop(10*time.Second))
	})
	return p
}

// startRole runs this test binary as another process.
func startRole(b *testing.B, dir, role string, env ...string) *process.Process {
	b.Helper()
	self, err := os.Executable()
	require.NoError(b, err)
	return start(b, dir, role, self, append(append(os.Environ(), env...), roleEnv+"="+role, dirEnv+"="+dir))
}

// cpu is the CPU time that a process has used so far, as user and in the kernel,
// on all its threads.
func cpu(b *testing.B, pid int) time.Duration {
	b.Helper()
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	require.NoError(b, err)
	// proc(5): fields 14 and 15, in ticks of 10 ms; the name in field 2 may have
	// blanks.
	fields := strings.Fields(string(stat[strings.LastIndexByte(string(stat), ')')+1:]))
	user, err := strconv.ParseInt(fields[11], 10, 64)
	require.NoError(b, err)
	system, err := strconv.ParseInt(fields[12], 10, 64)
	require.NoError(b, err)
	return time.Duration(user+system) * 10 * time.Millisecond
}

// memory returns the resident set of a process in MB (10^6 bytes), now and at
// its peak.
func memory(b *testing.B, pid int) (now, peak float64) {
	b.Helper()
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	require.NoError(b, err)
	kB := func(key string) float64 {
		_, rest, ok := strings.Cut(string(status), key+":")
		require.True(b, ok, key)
		n, err := strconv.ParseFloat(strings.Fields(rest)[0], 64)
		require.NoError(b, err)
		return n * 1024 / 1e6
	}
	return kB("VmRSS"), kB("VmHWM")
}

// await waits until a URL answers 200.
func await(b *testing.B, p *process.Process, url string) {
	b.Helper()
	for until := time.Now().Add(patience); ; time.Sleep(20 * time.Millisecond) {
		resp, err := http.Get(url)
		if err == nil {
			_ = resp.Body.Close()
			if resp.StatusCode == http.StatusOK {
				return
			}
		}
		require.True(b, time.Now().Before(until), "%s does not answer: %v\n%s", url, err, p.LogTail())
	}
}

// getJSON reads what a URL says.
func getJSON(b *testing.B, url string, into any) {
	b.Helper()
	resp, err := http.Get(url)
	require.NoError(b, err)
	defer resp.Body.Close()
	require.NoError(b, json.NewDecoder(resp.Body).Decode(into))
}
