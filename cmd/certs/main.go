// Command certs creates the TLS certificates and the bearer token between
// Metacontroller and webhooks.
package main

import (
	"crypto/sha256"
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

func main() {
	err := run(os.Args[1:], os.Stdin, os.Stdout, clock.RealClock{})
	if err != nil && !errors.Is(err, flags.ErrHelp) {
		fmt.Fprintf(os.Stderr, "certs: %v\n", err)
		os.Exit(1)
	}
}

const intro = `certs creates a certificate authority, a server certificate and a bearer token for
Metacontroller and webhooks, as Secrets and a patch of the CompositeController, in a
folder that is a kustomize component. It is idempotent: a valid folder is not
changed, and the expiry is printed. It never prints a key or a token.`

// maxCAFile limits the size of --ca-file, in bytes.
const maxCAFile = 1 << 20

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
	_, err = io.WriteString(out, report(opts, result))
	return err
}

// parse parses the command line and the environment.
func parse(args []string, in io.Reader, out io.Writer) (certs.Options, error) {
	opts := certs.DefaultOptions()
	var caFile, extra string
	fs := flags.NewSet("certs", intro, out)
	fs.StringVar(&opts.Dir, "out", "metacontroller/install/tls", "`folder` to write to: missing, empty, or written by certs")
	fs.StringVar(&opts.Namespace, "namespace", opts.Namespace, "`namespace` of webhooks")
	fs.StringVar(&opts.Service, "service", opts.Service, "`name` of the Service in front of webhooks")
	fs.IntVar(&opts.Port, "port", opts.Port, "`port` in the CompositeController's hook URLs")
	fs.StringVar(&extra, "extra-names", "", "further DNS `names` and IP addresses of the server certificate, separated by commas")
	fs.StringVar(&caFile, "ca-file", "", "PEM `file` with the certificate of an external authority that issues the server certificate, such as cert-manager's; - is standard input")
	fs.StringVar((*string)(&opts.Action), "renew", "", "renew one `thing` in a folder in use: server, token or ca; or all, even in a damaged one, and hooks fail until both sides have it")
	fs.BoolVar(&opts.DropPrevious, "drop-previous", false, "revoke the previous authority and token")
	if err := flags.Parse(fs, args); err != nil {
		return certs.Options{}, err
	}
	opts.ExtraNames = strings.FieldsFunc(extra, func(r rune) bool { return r == ',' || r == ' ' })
	return opts, readCA(&opts, caFile, in)
}

// readCA reads --ca-file, or in when that is "-".
func readCA(opts *certs.Options, path string, in io.Reader) error {
	if path == "" {
		return nil
	}
	if path != "-" {
		f, err := os.Open(path)
		if err != nil {
			return fmt.Errorf("--ca-file: %w", err)
		}
		defer f.Close()
		in = f
	}
	data, err := io.ReadAll(io.LimitReader(in, maxCAFile+1))
	if len(data) > maxCAFile {
		return errors.New("--ca-file: is larger than 1 MiB; want a few certificates")
	}
	if err == nil {
		opts.CA, err = certs.ParseAuthorities(data)
	}
	if err != nil {
		return fmt.Errorf("--ca-file: %w", err)
	}
	return nil
}

// report returns the state of the folder and the next steps.
func report(opts certs.Options, r certs.Result) string {
	var b strings.Builder
	state := "is valid, nothing to do"
	if r.Written {
		state = "written; it holds keys, keep it out of repositories"
	}
	fmt.Fprintf(&b, "%s: %s\n", opts.Dir, state)
	fmt.Fprintf(&b, "  authority   %x, until %s\n", sha256.Sum256(r.CA.Raw), r.CA.NotAfter.Format(time.DateOnly))
	if r.Server != nil {
		names := strings.Join(r.Server.DNSNames, " ")
		for _, ip := range r.Server.IPAddresses {
			names += " " + ip.String()
		}
		fmt.Fprintf(&b, "  certificate %s, until %s\n", names, r.Server.NotAfter.Format(time.DateOnly))
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
	return b.String()
}

const (
	applyController = "apply the CompositeController with its patch, so that Metacontroller reloads it: kubectl apply -k metacontroller (or your overlay)"
	awaitWebhooks   = "wait until every webhooks Pod logged \"changed file loaded\", at most two minutes"
)

// steps are ordered so that neither side rejects the other, except with --renew all.
func steps(opts certs.Options, r certs.Result) []string {
	switch {
	case r.SpecChanges && opts.Action == certs.RenewAll:
		return []string{applyController, awaitWebhooks + "; hooks fail until then, and instances stay as they are"}
	case r.SpecChanges && opts.Action != certs.RenewToken:
		return []string{applyController}
	}
	secrets := fmt.Sprintf("apply the Secrets: kubectl apply -f %s/%s", opts.Dir, certs.FileToken)
	if r.Server != nil {
		secrets += fmt.Sprintf(" -f %s/%s", opts.Dir, certs.FileTLS)
	}
	if r.SpecChanges {
		return []string{secrets, awaitWebhooks, applyController}
	}
	return []string{secrets}
}
