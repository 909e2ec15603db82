// Package flags parses command lines in the one way that all our processes
// share: every flag --some-name can also be given as PX_SOME_NAME, a flag wins
// over the environment, and --help says so.
package flags

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"net"
	"slices"
	"strings"

	"github.com/peterbourgon/ff/v3"

	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/internal/logging"
	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/internal/version"
)

// envPrefix is put before the upper-cased flag name, with "_" for "-".
const envPrefix = "PX"

// ErrHelp is returned by Parse when --help or --version was asked for and has
// been printed. A process that meets it exits with 0.
var ErrHelp = flag.ErrHelp

// Logging are the flags about logs.
type Logging struct {
	// LogLevel is debug, info, warn or error.
	LogLevel string
	// LogFormat is json or text.
	LogFormat string
}

// Register declares the flags on fs with their defaults.
func (l *Logging) Register(fs *flag.FlagSet, level, format string) {
	fs.StringVar(&l.LogLevel, "log-level", level, "least `level` that is logged: debug, info, warn or error")
	fs.StringVar(&l.LogFormat, "log-format", format, "log `format`: json or text")
}

// Logger returns the logger that the flags ask for, or an error that names the
// wrong one.
func (l *Logging) Logger(w io.Writer) (*slog.Logger, error) {
	return logging.New(w, l.LogLevel, l.LogFormat)
}

// Validate returns Logger's error.
func (l *Logging) Validate() error {
	_, err := l.Logger(io.Discard)
	return err
}

// Common are the flags that every long-running process has.
type Common struct {
	// OpsAddr is where /livez, /readyz and /metrics are served.
	OpsAddr string
	// Kubeconfig is a path; empty means the Pod's own service account.
	Kubeconfig string
	// Logging to standard error.
	Logging
}

// Register declares the common flags on fs. opsAddr is the default ops
// address, which differs so that the processes can share a host.
func (c *Common) Register(fs *flag.FlagSet, opsAddr string) {
	fs.StringVar(&c.OpsAddr, "ops-addr", opsAddr, "`address` that serves /livez, /readyz and /metrics without authentication")
	fs.StringVar(&c.Kubeconfig, "kubeconfig", "", "`path` of a kubeconfig; empty uses the Pod's service account")
	c.Logging.Register(fs, "info", "json")
}

// Validate returns everything that is wrong with the common flags, each named.
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

// Set adds values. Empty ones do not count.
func (l *List) Set(v string) error {
	for item := range strings.SplitSeq(v, ",") {
		if item = strings.TrimSpace(item); item != "" {
			*l = append(*l, item)
		}
	}
	return nil
}

// NewSet returns a flag set whose --help prints intro, then every flag with its
// default and environment variable, to out.
func NewSet(name, intro string, out io.Writer) *flag.FlagSet {
	fs := flag.NewFlagSet(name, flag.ContinueOnError)
	fs.SetOutput(out)
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
	fmt.Fprintln(out, "  --version\n      print which build this is, and end")
}

// Listenable reports whether addr is host:port, as the flags that name an
// address to serve on want it. The host may be empty.
func Listenable(addr string) bool {
	_, port, err := net.SplitHostPort(addr)
	return err == nil && port != ""
}

// EnvName is the environment variable that stands for a flag.
func EnvName(flagName string) string {
	return envPrefix + "_" + strings.ToUpper(strings.ReplaceAll(flagName, "-", "_"))
}

// Parse reads args, then the environment for the flags that args left out. It
// returns ErrHelp after printing help or the version, and an error that names
// the flag and the bad value otherwise. Positional arguments are refused: a
// forgotten "--" would else be ignored silently.
func Parse(fs *flag.FlagSet, args []string) error {
	if wantsVersion(args) {
		fmt.Fprintln(fs.Output(), fs.Name(), version.Get())
		return ErrHelp
	}
	quiet := fs.Output()
	fs.SetOutput(io.Discard)
	usage := fs.Usage
	fs.Usage = func() {}
	err := ff.Parse(fs, args, ff.WithEnvVarPrefix(envPrefix))
	fs.SetOutput(quiet)
	fs.Usage = usage
	switch {
	case errors.Is(err, flag.ErrHelp):
		usage()
		return ErrHelp
	case err != nil:
		return fmt.Errorf("%w; see %s --help", explain(fs, err), fs.Name())
	case fs.NArg() > 0:
		return fmt.Errorf("unexpected argument %s; flags start with --, see %s --help", stray(fs.Arg(0), len(args)-fs.NArg()+1), fs.Name())
	}
	if name := swallower(fs); name != "" {
		return fmt.Errorf("--%s needs a value, and was given the next flag; see %s --help", name, fs.Name())
	}
	return nil
}

// swallower is a flag that took the next one for its value, "" for none. What comes after
// would repeat that, and with it maybe a password.
func swallower(fs *flag.FlagSet) (found string) {
	fs.Visit(func(f *flag.Flag) {
		next, isFlag := strings.CutPrefix(f.Value.String(), "--")
		next, _, _ = strings.Cut(next, "=")
		if isFlag && fs.Lookup(next) != nil {
			found = f.Name
		}
	})
	return found
}

// wantsVersion looks for --version, which is no flag of a set: it would have an
// environment variable PX_VERSION, and such a name is taken in many an image.
func wantsVersion(args []string) bool {
	return slices.Contains(args, "--version") || slices.Contains(args, "-version")
}
