// Command certs creates the TLS certificates and the bearer token between
// Metacontroller and webhooks.
package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"k8s.io/utils/clock"

	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/internal/flags"
	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/metacontroller/install/certs"
)

func main() { os.Exit(exitCode()) }

func exitCode() int {
	err := run(os.Args[1:], os.Stdin, os.Stdout, clock.RealClock{})
	if err == nil || errors.Is(err, flags.ErrHelp) {
		return 0
	}
	fmt.Fprintf(os.Stderr, "certs: %v\n", err)
	return 1
}

// run ensures the folder. in is the input of --ca-file -.
func run(args []string, in io.Reader, out io.Writer, clk clock.PassiveClock) error {
	opts, err := parse(args, in, out)
	if err != nil {
		return err
	}
	result, err := certs.Ensure(opts, clk.Now())
	if err != nil {
		return err
	}
	return report(out, opts, result)
}

// report prints the state of the folder and the next steps.
func report(out io.Writer, opts certs.Options, r certs.Result) error {
	var b strings.Builder
	state := "is valid, nothing to do"
	if r.Written {
		state = "written; it holds keys, keep it out of repositories"
	}
	fmt.Fprintf(&b, "%s: %s\n", opts.Dir, state)
	fmt.Fprintf(&b, "  authority   %s, until %s\n", r.CAFingerprint, r.CAExpires.UTC().Format(time.DateOnly))
	if len(r.ServerNames) > 0 {
		fmt.Fprintf(&b, "  certificate %s, until %s\n", strings.Join(r.ServerNames, " "), r.ServerExpires.UTC().Format(time.DateOnly))
	}
	fmt.Fprintf(&b, "  token       %s (its ID, not the token)\n", r.TokenID)
	if r.Previous {
		fmt.Fprintln(&b, "  the previous authority or token is still trusted; revoke it later with --drop-previous")
	}
	if r.Written {
		for i, step := range steps(opts, r) {
			fmt.Fprintf(&b, "%d. %s\n", i+1, step)
		}
	}
	_, err := io.WriteString(out, b.String())
	return err
}

const (
	applySecrets    = "apply the Secrets: kubectl apply %s"
	applyController = "apply the CompositeController with its patch, so that Metacontroller reloads it: kubectl apply -k metacontroller (or your overlay)"
	awaitWebhooks   = "wait until every webhooks Pod logged \"changed file loaded\", at most two minutes"
)

// steps are ordered so that neither side rejects the other, except with --force.
func steps(opts certs.Options, r certs.Result) []string {
	files := "-f " + opts.Dir + "/" + certs.FileToken
	if len(opts.CA) == 0 {
		files += " -f " + opts.Dir + "/" + certs.FileTLS
	}
	secrets := fmt.Sprintf(applySecrets, files)
	switch {
	case !r.SpecChanges:
		return []string{secrets}
	case opts.Action == certs.RenewToken:
		return []string{secrets, awaitWebhooks, applyController}
	case opts.Action == certs.RenewCA:
		return []string{applyController}
	case opts.Action == certs.Replace:
		return []string{applyController, awaitWebhooks + "; hooks fail until then, and instances stay as they are"}
	}
	return []string{applyController}
}
