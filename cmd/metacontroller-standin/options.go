package main

import (
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/internal/flags"
	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/metacontroller/standin"
)

const intro = `Runs one CompositeController as Metacontroller does, on laptops and in tests.
Clusters run the real Metacontroller.`

// options are the parsed flags.
type options struct {
	flags.Common
	controllerFile string
	workers        int
	resyncPeriod   time.Duration
	hookCAFile     string
	hookTokenFile  string
	hookCA         *x509.CertPool
	hookToken      string
}

func parseOptions(args []string, out io.Writer) (*options, error) {
	var o options
	fs := flags.NewSet(name, intro, out)
	o.Register(fs, ":8084")
	fs.StringVar(&o.controllerFile, "controller-file", "", "`path` of the CompositeController's YAML")
	fs.IntVar(&o.workers, "workers", standin.DefaultWorkers, "`number` of parents that are reconciled concurrently")
	fs.DurationVar(&o.resyncPeriod, "resync-period", 0, "`time` between resyncs of every parent; 0 is the manifest's resyncPeriodSeconds")
	fs.StringVar(&o.hookCAFile, "hook-ca", "", "PEM `file` with the authorities that verify hooks; empty is the system's")
	fs.StringVar(&o.hookTokenFile, "hook-token-file", "", "`file` whose first line is the bearer token of hook requests")
	if err := flags.Parse(fs, args); err != nil {
		return nil, err
	}
	return &o, errors.Join(o.validate(), o.readFiles())
}

// readFiles reads the authorities and the token of the hooks.
func (o *options) readFiles() error {
	var errs []error
	if o.hookCAFile != "" {
		content, err := os.ReadFile(o.hookCAFile)
		o.hookCA = x509.NewCertPool()
		if err == nil && !o.hookCA.AppendCertsFromPEM(content) {
			err = fmt.Errorf("%s has no certificate in it", o.hookCAFile)
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("--hook-ca: %w", err))
		}
	}
	if o.hookTokenFile != "" {
		content, err := os.ReadFile(o.hookTokenFile)
		line, _, _ := strings.Cut(string(content), "\n")
		o.hookToken = strings.TrimSpace(line)
		if err == nil && o.hookToken == "" {
			err = fmt.Errorf("%s has no token on its first line", o.hookTokenFile)
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("--hook-token-file: %w", err))
		}
	}
	return errors.Join(errs...)
}

// validate returns all errors, each with its flag.
func (o *options) validate() error {
	var errs []error
	if o.controllerFile == "" {
		errs = append(errs, errors.New("--controller-file is required: name the CompositeController's YAML, such as metacontroller/compositecontroller.yaml"))
	}
	if o.workers < 1 {
		errs = append(errs, fmt.Errorf("--workers %d: want at least 1", o.workers))
	}
	if o.resyncPeriod != 0 && o.resyncPeriod < time.Second {
		errs = append(errs, fmt.Errorf("--resync-period %s: want 0 or at least 1s", o.resyncPeriod))
	}
	return errors.Join(append(errs, o.Common.Validate())...)
}
