// Package command runs a program with a leased proxy in its environment.
package command

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/client"
)

// Exit statuses of Run beside those of the program. 75 is EX_TEMPFAIL of sysexits.h; 126
// and 127 are those of a shell.
const (
	ExitNoProxy    = 75
	ExitNotStarted = 126
	ExitNotFound   = 127
	// exitSignal is added to the number of the signal that ended the program.
	exitSignal = 128
)

// TokenVariable is the environment variable with the token of discovery.
const TokenVariable = "DISCOVERY_TOKEN"

// stopGrace is the time between SIGTERM and SIGKILL for a program whose lease is lost.
const stopGrace = 10 * time.Second

// Options of Run.
type Options struct {
	// Want selects the proxy.
	Want client.Want
	// Program and its arguments.
	Program []string
	// Results are the reports by exit status, which win over those that Run knows for
	// curl. A status without one is not reported, but for 0: ok.
	Results map[int]client.Result
	// KeepRunning lets the program run when its lease is lost. It then uses a proxy that
	// is not its own.
	KeepRunning bool

	Stdin       io.Reader
	Out, ErrOut io.Writer
	// Log of what happens to the lease. It never contains a password.
	Log *slog.Logger
	// Signals are passed to the program.
	Signals <-chan os.Signal
}

// Run leases a proxy, runs the program with it, renews the lease meanwhile, reports by
// the program's exit status and releases the lease. It returns the exit status of the
// program, or with an error one of its own.
func Run(ctx context.Context, c *client.Client, o Options) (int, error) {
	path, err := exec.LookPath(o.Program[0])
	if err != nil {
		return ExitNotFound, fmt.Errorf("program: %w", err)
	}
	lease, err := c.Acquire(ctx, o.Want)
	if err != nil {
		return ExitNoProxy, fmt.Errorf("lease a proxy: %w", err)
	}
	o.Log.Info("proxy leased", "proxy", lease.Proxy.FullName(), "lease", lease.ID)
	// The program may have been ended by the signal that ended ctx.
	over := context.WithoutCancel(ctx)
	defer func() {
		if err := lease.Release(over); err != nil {
			o.Log.Warn("lease not released: it expires by itself", "err", err.Error())
		}
	}()
	status, err := o.run(lease, path)
	if err != nil {
		return ExitNotStarted, err
	}
	if lease.Err() != nil {
		o.Log.Error("lease lost", "err", lease.Err().Error(), "programStopped", !o.KeepRunning)
		return status, nil
	}
	result := o.resultOf(status)
	if err := lease.Report(over, client.Report{Result: result}); err != nil {
		o.Log.Warn("report failed", "result", result, "err", err.Error())
	}
	return status, nil
}

// run runs the program to its end and returns its exit status.
func (o Options) run(lease *client.Lease, path string) (int, error) {
	cmd := &exec.Cmd{
		Path: path, Args: o.Program, Env: Environ(os.Environ(), lease),
		Stdin: o.Stdin, Stdout: o.Out, Stderr: o.ErrOut,
	}
	if err := cmd.Start(); err != nil {
		return 0, fmt.Errorf("start %s: %w", o.Program[0], err)
	}
	ended := make(chan struct{})
	watched := make(chan struct{})
	go func() {
		defer close(watched)
		o.watch(cmd.Process, lease, ended)
	}()
	err := cmd.Wait()
	close(ended)
	<-watched
	var exit *exec.ExitError
	switch {
	case err == nil:
		return 0, nil
	case !errors.As(err, &exit):
		return 0, fmt.Errorf("run %s: %w", o.Program[0], err)
	}
	if ws, ok := exit.Sys().(syscall.WaitStatus); ok && ws.Signaled() {
		return exitSignal + int(ws.Signal()), nil
	}
	return exit.ExitCode(), nil
}

// watch passes signals on and stops the program when the lease is lost.
func (o Options) watch(p *os.Process, lease *client.Lease, ended <-chan struct{}) {
	lost, unusable := lease.Done(), lease.Unusable()
	if o.KeepRunning {
		lost = nil
	}
	var kill <-chan time.Time
	for {
		select {
		case <-ended:
			return
		case s := <-o.Signals:
			_ = p.Signal(s)
		case <-unusable:
			unusable = nil
			s := lease.Status()
			o.Log.Warn("proxy should not be used any more; the program goes on", "verdict", s.Verdict, "reason", s.Reason)
		case <-lost:
			lost = nil
			_ = p.Signal(syscall.SIGTERM)
			kill = time.After(stopGrace)
		case <-kill:
			_ = p.Kill()
		}
	}
}

// known are the exit statuses of programs that speak of the proxy or the site, from
// their manuals. wget has none: its 4, and curl's 56, stand for any network failure.
var known = map[string]map[int]client.Result{
	"curl": {
		5:  client.ConnectError, // could not resolve proxy
		7:  client.ConnectError, // failed to connect: all connections go to the proxy
		28: client.TargetTimeout,
		97: client.ConnectError, // proxy handshake error
	},
}

// resultOf returns the result to report for an exit status, "" for none.
func (o Options) resultOf(status int) client.Result {
	if r, ok := o.Results[status]; ok {
		return r
	}
	if status == 0 {
		return client.OK
	}
	return known[filepath.Base(o.Program[0])][status]
}

// Environ returns env with the variables that programs read for a proxy. Those that
// exempt hosts from it are removed: nothing may go around the proxy. So is the token of
// discovery, which the program does not need.
func Environ(env []string, lease *client.Lease) []string {
	proxy, raw := lease.ProxyURL, lease.RawProxyURL
	password, _ := proxy.User.Password()
	set := map[string]string{
		"PROXY_URL": raw, "PROXY_SCHEME": proxy.Scheme, "PROXY_HOST": proxy.Hostname(), "PROXY_PORT": proxy.Port(),
		"PROXY_USERNAME": proxy.User.Username(), "PROXY_PASSWORD": password,
	}
	for _, name := range []string{"http_proxy", "https_proxy", "ftp_proxy", "ws_proxy", "wss_proxy", "all_proxy"} {
		set[name], set[strings.ToUpper(name)] = raw, raw
	}
	var out []string
	for _, entry := range env {
		name, _, _ := strings.Cut(entry, "=")
		if _, replaced := set[name]; !replaced && !strings.EqualFold(name, "no_proxy") && name != TokenVariable {
			out = append(out, entry)
		}
	}
	for name, value := range set {
		out = append(out, name+"="+value)
	}
	return out
}

// ParseResults parses "22=banned,4=": reports by exit status; an empty one switches the
// report off.
func ParseResults(items []string) (map[int]client.Result, error) {
	results := map[int]client.Result{}
	for _, item := range items {
		status, result, found := strings.Cut(item, "=")
		n, err := strconv.Atoi(status)
		if !found || err != nil || n < 0 || n > 255 {
			return nil, fmt.Errorf("%q: want EXIT-STATUS=RESULT, such as 22=banned", item)
		}
		if result != "" && !client.Result(result).Valid() {
			return nil, fmt.Errorf("%q: want one of %s after the =", item, client.ResultNames())
		}
		results[n] = client.Result(result)
	}
	return results, nil
}
