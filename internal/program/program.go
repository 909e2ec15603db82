// Package program is what the main functions of our processes have in common.
package program

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"

	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/internal/flags"
)

// Run is a whole process. It returns nil when its work is done or ctx has ended, and
// flags.ErrHelp after printing help. Logs and help go to out.
type Run func(ctx context.Context, args []string, out io.Writer) error

// Main runs a process on the command line and standard error until it ends, and
// returns its exit status: 1 after an error, which is printed under the name,
// and 0 otherwise. The first SIGINT or SIGTERM ends the process's context; the
// next one kills it.
func Main(name string, run Run) int {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	context.AfterFunc(ctx, stop)
	err := run(ctx, os.Args[1:], flags.ProcessLog{Writer: os.Stderr})
	if err == nil || errors.Is(err, flags.ErrHelp) {
		return 0
	}
	fmt.Fprintf(os.Stderr, "%s: %v\n", name, err)
	return 1
}
