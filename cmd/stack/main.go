// Command stack runs the whole system on this machine: no cluster, no Docker,
// no root.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"

	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/internal/flags"
	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/stack"
	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/stack/controlplane"
	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/stack/walk"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	err := run(ctx, os.Args[1:], os.Stdout)
	switch {
	case err == nil || errors.Is(err, flags.ErrHelp):
	case ctx.Err() != nil && errors.Is(err, context.Canceled):
		fmt.Fprintln(os.Stderr, "stack: interrupted")
		os.Exit(130)
	default:
		fmt.Fprintln(os.Stderr, "stack:", err)
		os.Exit(1)
	}
}

const usage = `stack runs the whole system on this machine, on loopback addresses of its own.

  stack demo    start it, walk through the whole job, check every step, stop it
  stack up      start it, print how to use it, stop it on Ctrl-C
  stack e2e     run the manifests on a real node instead, and walk there (root)
  stack chaos   start it with hundreds of Proxies, break it, and check its promises
  stack crawl   crawl without proxies, with a list of them and with leases, while proxies fail
  stack assets  build its API server, so that the others start in seconds

stack COMMAND --help lists the flags of a command.`

// run is the program.
func run(ctx context.Context, args []string, out io.Writer) error {
	commands := map[string]func(context.Context, []string, io.Writer) error{
		"demo":   demo,
		"up":     up,
		"assets": assets,
		"e2e":    e2e,
		"chaos":  chaos,
		"crawl":  crawlFleet,
	}
	if len(args) == 0 {
		return fmt.Errorf("which command?\n\n%s", usage)
	}
	if command, ok := commands[args[0]]; ok {
		return command(ctx, args[1:], out)
	}
	switch args[0] {
	case "help", "-h", "-help", "--help":
		fmt.Fprintln(out, usage)
		return flags.ErrHelp
	}
	return fmt.Errorf("unknown command %q\n\n%s", args[0], usage)
}

// demo walks a stack of its own.
func demo(ctx context.Context, args []string, out io.Writer) error {
	o, err := parse("stack demo", "Starts the whole system, walks through the whole job and checks every step.", args, out)
	if err != nil {
		return err
	}
	s, err := start(ctx, o, out)
	if err != nil {
		return err
	}
	facts := s.Facts()
	facts.RequireSquid = o.requireSquid
	err = walkWhileItLives(ctx, s, facts, out)
	failed := err != nil && ctx.Err() == nil
	if failed {
		fmt.Fprintf(out, "\nFAILED: %v\n", err)
	}
	if err := errors.Join(err, s.Stop(failed)); err != nil {
		return err
	}
	fmt.Fprintln(out, "Stopped everything; nothing is left.")
	return nil
}

// walkWhileItLives walks, and stops when a part of the stack exits.
func walkWhileItLives(ctx context.Context, s *stack.Stack, facts walk.Stack, out io.Writer) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	lived := make(chan struct{})
	go func() {
		defer close(lived)
		if err := s.Wait(ctx); err != nil {
			cancel(err)
		}
	}()
	err := walk.Run(ctx, facts, out)
	if cause := context.Cause(ctx); err != nil && cause != nil {
		err = errors.Join(cause, err)
	}
	cancel(nil)
	<-lived
	return err
}

// up runs a stack until it is interrupted.
func up(ctx context.Context, args []string, out io.Writer) error {
	o, err := parse("stack up", "Starts the whole system and leaves it running until Ctrl-C.", args, out)
	if err != nil {
		return err
	}
	s, err := start(ctx, o, out)
	if err != nil {
		return err
	}
	greet(out, s)
	err = s.Wait(ctx)
	if err == nil {
		fmt.Fprintln(out, "\nStopping.")
	}
	return errors.Join(err, s.Stop(err != nil))
}

// assets builds what a stack needs.
func assets(ctx context.Context, args []string, out io.Writer) error {
	fs := flags.NewSet("stack assets", "Finds etcd, kube-apiserver and kubectl, or builds them once, which takes minutes.", out)
	if err := flags.Parse(fs, args); err != nil {
		return err
	}
	found, err := controlplane.Ensure(ctx, out)
	if err != nil {
		return err
	}
	fmt.Fprintf(out, "etcd, kube-apiserver and kubectl: %s\n", found.Origin)
	return nil
}

func start(ctx context.Context, o *options, out io.Writer) (*stack.Stack, error) {
	found, err := controlplane.Ensure(ctx, out)
	if err != nil {
		return nil, err
	}
	o.assets = found
	return stack.Start(ctx, o.stackConfig(out))
}
