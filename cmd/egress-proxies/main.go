// Command egress-proxies runs a program with a leased proxy.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"

	"golang.org/x/sys/unix"

	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/client/command"
	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/internal/flags"
)

// exitUsage is the exit status for a bad command line.
const exitUsage = 2

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), signals...)
	defer stop()
	status, err := run(ctx, os.Args[1:], os.Stdin, os.Stdout, os.Stderr)
	if err != nil {
		fmt.Fprintf(os.Stderr, "egress-proxies: %v\n", err)
	}
	os.Exit(status) //nolint:gocritic // the signals need no clean-up
}

// run returns the exit status. Help goes to out, logs to errOut.
func run(ctx context.Context, args []string, in io.Reader, out, errOut io.Writer) (int, error) {
	if len(args) == 0 || args[0] == "--help" || args[0] == "-h" || args[0] == "help" {
		_, err := io.WriteString(out, overview)
		return 0, err
	}
	if args[0] != "lease" {
		return exitUsage, fmt.Errorf("unknown command %q: want lease; see egress-proxies --help", args[0])
	}
	o, err := parse(args[1:], out)
	if errors.Is(err, flags.ErrHelp) {
		return 0, nil
	}
	if err != nil {
		return exitUsage, err
	}
	c, err := o.client()
	if err != nil {
		return exitUsage, err
	}
	log, err := o.Logger(errOut)
	if err != nil {
		return exitUsage, err
	}
	passed, stop := forwarded(in)
	defer stop()
	return command.Run(ctx, c, command.Options{
		Want: o.want, Program: o.program, Results: o.results, KeepRunning: o.keepRunning,
		Stdin: in, Out: out, ErrOut: errOut, Log: log, Signals: passed,
	})
}

// signals that would end this process, and leave the lease. A terminal sends the last two
// to the program, too.
var signals = []os.Signal{syscall.SIGTERM, syscall.SIGHUP, os.Interrupt, syscall.SIGQUIT}

// forwarded passes on the signals that the program does not get by itself.
func forwarded(in io.Reader) (<-chan os.Signal, func()) {
	all := signals
	if isTerminal(in) {
		all = all[:2]
	}
	c := make(chan os.Signal, len(all))
	signal.Notify(c, all...)
	return c, func() { signal.Stop(c) }
}

// isTerminal reports whether in is a terminal. /dev/null is a character device as well, so
// that the file's mode does not show it; only terminals have a window size.
func isTerminal(in io.Reader) bool {
	f, ok := in.(*os.File)
	if !ok {
		return false
	}
	_, err := unix.IoctlGetWinsize(int(f.Fd()), unix.TIOCGWINSZ)
	return err == nil
}
