// Package flags parses the command lines of all our processes in one way: each flag
// --some-name can also be set by the environment variable PX_SOME_NAME, and the
// flag wins.
package flags

import (
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"slices"
	"strings"

	flag "github.com/spf13/pflag"

	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/internal/version"
)

// ErrHelp is returned by Parse after it has printed --help or --version. A process
// that gets it exits with status 0.
var ErrHelp = flag.ErrHelp

// Common are the flags that every long-running process has.
type Common struct {
	// OpsAddr is where /livez, /readyz and /metrics are served.
	OpsAddr string
	// Kubeconfig is a path; empty means the Pod's own service account.
	Kubeconfig string
	// Logging to standard error.
	Logging
}

// Register declares the common flags on fs. opsAddr is the default ops address. It
// differs per process, so that all processes can share a host.
func (c *Common) Register(fs *flag.FlagSet, opsAddr string) {
	fs.StringVar(&c.OpsAddr, "ops-addr", opsAddr, "`address` that serves /livez, /readyz and /metrics without authentication")
	fs.StringVar(&c.Kubeconfig, "kubeconfig", "", "`path` of a kubeconfig; empty uses the Pod's service account")
	c.Logging.Register(fs, "info", "json")
}

// Validate returns an error for each common flag with a bad value.
func (c *Common) Validate() error {
	var opsErr error
	if !Listenable(c.OpsAddr) {
		opsErr = fmt.Errorf("--ops-addr %q: want host:port, such as :8081", c.OpsAddr)
	}
	return errors.Join(opsErr, c.Logging.Validate())
}

// List is a flag that may be repeated or hold several values with commas.
type List []string

// String joins the values with commas.
func (l *List) String() string { return strings.Join(*l, ",") }

// Set adds values and ignores empty ones.
func (l *List) Set(v string) error {
	for item := range strings.SplitSeq(v, ",") {
		if item = strings.TrimSpace(item); item != "" {
			*l = append(*l, item)
		}
	}
	return nil
}

// Type implements pflag.Value.
func (l *List) Type() string { return "list" }

// NewSet returns a flag set whose --help prints intro, then each flag with its
// default and environment variable, to out.
func NewSet(name, intro string, out io.Writer) *flag.FlagSet {
	fs := flag.NewFlagSet(name, flag.ContinueOnError)
	fs.SetOutput(out)
	fs.SetInterspersed(false)
	fs.Usage = func() { usage(fs, intro) }
	return fs
}

func usage(fs *flag.FlagSet, intro string) {
	out := fs.Output()
	fmt.Fprintf(out, "%s\n\nUsage: %s [flags]\n\nEach flag can also be set by the environment variable in brackets; the flag wins.\n\n", strings.TrimSpace(intro), fs.Name())
	fs.VisitAll(func(f *flag.Flag) {
		arg, text := flag.UnquoteUsage(f)
		fmt.Fprintf(out, "  --%s %s [%s]\n      %s", f.Name, arg, EnvName(f.Name), text)
		if f.DefValue != "" {
			fmt.Fprintf(out, " (default %s)", f.DefValue)
		}
		fmt.Fprintln(out)
	})
	fmt.Fprintln(out, "  --version\n      print which build this is, and exit")
}

// Listenable reports whether addr is host:port, as flags that name a listen
// address require. The host may be empty.
func Listenable(addr string) bool {
	_, port, err := net.SplitHostPort(addr)
	return err == nil && port != ""
}

// EnvName is the environment variable of a flag.
func EnvName(flagName string) string {
	return "PX_" + strings.ToUpper(strings.ReplaceAll(flagName, "-", "_"))
}

// Parse reads args, then the environment for the flags that args lacks. It returns
// ErrHelp after printing help or the version. Other errors name the flag and the
// bad value. Positional arguments are an error: otherwise a missing "--" would be
// ignored silently.
func Parse(fs *flag.FlagSet, args []string) error {
	// --version is no flag of the set: it would have the environment variable
	// PX_VERSION, a name that many images use.
	if slices.Contains(args, "--version") || slices.Contains(args, "-version") {
		fmt.Fprintln(fs.Output(), fs.Name(), version.Get())
		return ErrHelp
	}
	err := fs.Parse(args)
	switch {
	case errors.Is(err, ErrHelp):
		return ErrHelp
	case err != nil:
		err = explain(err)
	case fs.NArg() > 0:
		err = fmt.Errorf("unexpected argument %s; flags start with --", stray(fs.Arg(0), len(args)-fs.NArg()+1))
	default:
		err = parseEnv(fs)
	}
	if err == nil {
		err = missingValue(fs)
	}
	if err != nil {
		return fmt.Errorf("%w; see %s --help", err, fs.Name())
	}
	return nil
}

// parseEnv sets the flags that are not set yet from the environment. It returns the
// first error.
func parseEnv(fs *flag.FlagSet) error {
	var first error
	fs.VisitAll(func(f *flag.Flag) {
		value := os.Getenv(EnvName(f.Name))
		if first != nil || f.Changed || value == "" {
			return
		}
		if err := fs.Set(f.Name, value); err != nil {
			first = badValue(EnvName(f.Name), value, f, errors.Unwrap(err))
		}
	})
	return first
}
