package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	flag "github.com/spf13/pflag"

	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/internal/flags"
	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/metacontroller/install/certs"
)

const intro = `certs creates a certificate authority, a server certificate and a bearer token for
Metacontroller and webhooks, as Secrets and a patch of the CompositeController, in a
folder that is a kustomize component. It is idempotent: a valid folder is not
changed, and the expiry is printed. It never prints a key or a token.`

// maxCAFile limits the size of --ca-file, in bytes.
const maxCAFile = 1 << 20

// parse parses the command line and the environment.
func parse(args []string, in io.Reader, out io.Writer) (certs.Options, error) {
	opts := certs.DefaultOptions()
	var caFile, extra, renew string
	var force bool
	fs := flags.NewSet("certs", intro, out)
	fs.StringVar(&opts.Dir, "out", "metacontroller/install/tls", "`folder` to write to: missing, empty, or written by certs")
	fs.StringVar(&opts.Namespace, "namespace", opts.Namespace, "`namespace` of webhooks")
	fs.StringVar(&opts.Service, "service", opts.Service, "`name` of the Service in front of webhooks")
	fs.IntVar(&opts.Port, "port", opts.Port, "`port` in the CompositeController's hook URLs")
	fs.StringVar(&extra, "extra-names", "", "further DNS `names` and IP addresses of the server certificate, separated by commas")
	fs.DurationVar(&opts.CAValidity, "ca-validity", opts.CAValidity, "validity of a new authority")
	fs.DurationVar(&opts.ServerValidity, "server-validity", opts.ServerValidity, "validity of a new server certificate")
	fs.StringVar(&caFile, "ca-file", "", "PEM `file` with the certificate of an external authority that issues the server certificate, such as cert-manager's; - is standard input")
	fs.StringVar(&renew, "renew", "", "renew one `thing` in a folder in use: server, token or ca")
	fs.BoolVar(&opts.DropPrevious, "drop-previous", false, "revoke the previous authority and token")
	fs.BoolVar(&force, "force", false, "replace everything in the folder; hooks fail until both sides have it")
	if err := flags.Parse(fs, args); err != nil {
		return certs.Options{}, err
	}
	opts.ExtraNames = strings.FieldsFunc(extra, func(r rune) bool { return r == ',' || r == ' ' })
	if err := setAction(&opts, fs, renew, force); err != nil {
		return certs.Options{}, err
	}
	return opts, readCA(&opts, caFile, in)
}

func setAction(opts *certs.Options, fs *flag.FlagSet, renew string, force bool) error {
	switch {
	case force && renew != "":
		return fmt.Errorf("--force replaces everything, --renew one thing: use one of them; see %s --help", fs.Name())
	case force:
		opts.Action = certs.Replace
	case renew == string(certs.Keep), renew == string(certs.Replace):
		return fmt.Errorf("--renew %q: want server, token or ca", renew)
	case renew != "":
		opts.Action = certs.Action(renew)
	}
	return nil
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
	switch {
	case err != nil:
		return fmt.Errorf("--ca-file: %w", err)
	case len(data) > maxCAFile:
		return errors.New("--ca-file: is larger than 1 MiB; want a few certificates")
	}
	if opts.CA, err = certs.ParseAuthorities(data); err != nil {
		return fmt.Errorf("--ca-file: %w", err)
	}
	return nil
}
