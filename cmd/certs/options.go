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

const intro = `certs makes what Metacontroller and webhooks need to trust each other: a
certificate authority, a server certificate and a bearer token, as Secrets and a
patch of the CompositeController, in a folder that is a kustomize component. Run
on a folder that is sound it changes nothing and says until when. It never
prints a key or a token.`

// maxCAFile bounds what is read from --ca-file.
const maxCAFile = 1 << 20

// parse reads the command line and the environment.
func parse(args []string, in io.Reader, out io.Writer) (certs.Options, error) {
	opts := certs.DefaultOptions()
	var caFile, extra, renew string
	var force bool
	fs := flags.NewSet("certs", intro, out)
	fs.StringVar(&opts.Dir, "out", "metacontroller/install/tls", "`folder` to write to; empty, not there, or written by certs before")
	fs.StringVar(&opts.Namespace, "namespace", opts.Namespace, "`namespace` that webhooks runs in")
	fs.StringVar(&opts.Service, "service", opts.Service, "`name` of the Service in front of webhooks")
	fs.IntVar(&opts.Port, "port", opts.Port, "`port` in the CompositeController's hook URLs")
	fs.StringVar(&extra, "extra-names", "", "DNS `names` and IP addresses to put into the server certificate as well, separated by commas")
	fs.DurationVar(&opts.CAValidity, "ca-validity", opts.CAValidity, "how long a new authority is valid")
	fs.DurationVar(&opts.ServerValidity, "server-validity", opts.ServerValidity, "how long a new server certificate is valid")
	fs.StringVar(&caFile, "ca-file", "", "PEM `file` with the certificate of an authority that makes the server certificate in our place, such as cert-manager's; - reads standard input")
	fs.StringVar(&renew, "renew", "", "make one `thing` anew in a folder that is in use: server, token or ca")
	fs.BoolVar(&opts.DropPrevious, "drop-previous", false, "stop trusting the authority and the token that were superseded")
	fs.BoolVar(&force, "force", false, "make everything in the folder anew; hooks fail until both sides have it")
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
		return fmt.Errorf("--force makes everything anew, --renew one thing: give one of them; see %s --help", fs.Name())
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
