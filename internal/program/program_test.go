package program

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	"k8s.io/klog/v2"

	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/internal/flags"
)

// actEnv makes the test binary a process that runs its first argument.
const actEnv = "PX_TEST_PROGRAM"

func TestMain(m *testing.M) {
	if os.Getenv(actEnv) != "" {
		os.Exit(Main("player", act))
	}
	goleak.VerifyTestMain(m)
}

func act(ctx context.Context, args []string, out io.Writer) error {
	switch args[0] {
	case "work":
		fmt.Fprintln(out, "worked")
		return nil
	case "help":
		return fmt.Errorf("wrapped: %w", flags.ErrHelp)
	case "fail":
		return errors.New("the disk is full")
	case "klog":
		if _, err := (&flags.Logging{LogLevel: "info", LogFormat: "json"}).Logger(out); err != nil {
			return err
		}
		klog.Warningf("%s of client-go", "a line")
		klog.InfoS("another", "lease", "cloud-a")
		return nil
	}
	fmt.Fprintln(out, "waiting")
	<-ctx.Done()
	fmt.Fprintln(out, "asked to end")
	if args[0] == "hang" {
		time.Sleep(time.Hour)
	}
	return nil
}

func player(what string) *exec.Cmd {
	cmd := exec.Command(os.Args[0], what)
	cmd.Env = append(os.Environ(), actEnv+"=1")
	return cmd
}

func TestExitStatus(t *testing.T) {
	for what, want := range map[string]struct {
		status int
		says   string
	}{
		"work": {0, "worked\n"},
		"help": {0, ""},
		"fail": {1, "player: the disk is full\n"},
	} {
		t.Run(what, func(t *testing.T) {
			out, err := player(what).CombinedOutput()
			var exit *exec.ExitError
			if want.status != 0 {
				require.ErrorAs(t, err, &exit)
				assert.Equal(t, want.status, exit.ExitCode())
			} else {
				require.NoError(t, err)
			}
			assert.Equal(t, want.says, string(out))
		})
	}
}

// client-go logs with klog, in a format that no reader of JSON understands.
func TestKlogWritesAsTheProcessDoes(t *testing.T) {
	out, err := player("klog").CombinedOutput()
	require.NoError(t, err)
	var got []map[string]any
	for line := range strings.Lines(string(out)) {
		var entry map[string]any
		require.NoError(t, json.Unmarshal([]byte(line), &entry), line)
		delete(entry, "time")
		got = append(got, entry)
	}
	assert.Equal(t, []map[string]any{
		{"level": "INFO", "msg": "a line of client-go"}, // its logger knows no warnings
		{"level": "INFO", "msg": "another", "lease": "cloud-a"},
	}, got)
}

func TestSignals(t *testing.T) {
	for name, sig := range map[string]syscall.Signal{"SIGINT": syscall.SIGINT, "SIGTERM": syscall.SIGTERM} {
		t.Run(name, func(t *testing.T) {
			p := begin(t, "wait")
			require.NoError(t, p.cmd.Process.Signal(sig))
			p.expect("asked to end")
			assert.NoError(t, p.cmd.Wait())
		})
	}
}

func TestSecondSignalKills(t *testing.T) {
	p := begin(t, "hang")
	require.NoError(t, p.cmd.Process.Signal(syscall.SIGTERM))
	p.expect("asked to end")
	ended := make(chan error, 1)
	go func() { ended <- p.cmd.Wait() }()
	// A signal in the moment before the first one is dealt with is lost.
	require.Eventually(t, func() bool {
		_ = p.cmd.Process.Signal(syscall.SIGTERM)
		return len(ended) > 0
	}, 20*time.Second, 10*time.Millisecond)
	assert.ErrorContains(t, <-ended, "signal: terminated")
}

// playing is a player that runs, and what it prints.
type playing struct {
	*testing.T
	cmd *exec.Cmd
	out *bufio.Reader
}

// begin starts a player and waits until it waits.
func begin(t *testing.T, what string) *playing {
	t.Helper()
	p := &playing{T: t, cmd: player(what)}
	out, err := p.cmd.StderrPipe()
	require.NoError(t, err)
	require.NoError(t, p.cmd.Start())
	t.Cleanup(func() { _ = p.cmd.Process.Kill() })
	p.out = bufio.NewReader(out)
	p.expect("waiting")
	return p
}

func (p *playing) expect(line string) {
	p.Helper()
	got, err := p.out.ReadString('\n')
	require.NoError(p, err)
	require.Equal(p, line, strings.TrimSpace(got))
}
