package main

import (
	"errors"
	"fmt"
	"io"
	"net/netip"
	"strings"
	"time"

	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/cloud/gcestandin"
	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/internal/flags"
)

const intro = `Stands in for Compute Engine on laptops and in tests: the same REST wire, and
VMs that are processes on loopback addresses of their own. Faults are scripted
over HTTP under /control. It has no authentication: keep it on loopback.`

// options are the parsed flags.
type options struct {
	flags.Logging
	addr     string
	project  string
	zones    string
	boot     time.Duration
	shutdown time.Duration
	command  string
	subnet   string
	root     string

	prefix netip.Prefix
}

func parseOptions(args []string, out io.Writer) (*options, error) {
	var o options
	fs := flags.NewSet("gcestandin", intro, out)
	fs.StringVar(&o.addr, "addr", "127.0.0.1:8095", "`address` that serves /compute/v1 and /control")
	fs.StringVar(&o.project, "project", "demo", "`project` that exists")
	fs.StringVar(&o.zones, "zones", "europe-west1-b,europe-west1-c,europe-west1-d,us-central1-a", "`zones` that exist, separated by commas")
	fs.DurationVar(&o.boot, "boot", 2*time.Second, "`time` from an insert until the VM is RUNNING")
	fs.DurationVar(&o.shutdown, "shutdown", 2*time.Second, "`time` from a delete until the VM is gone")
	fs.StringVar(&o.command, "vm-command", "", "`command` that each running VM is, a Go template per word over .Zone .Name .ID .IP .Port .Labels .Metadata .Dir and .UserData (a file); empty runs nothing")
	fs.StringVar(&o.subnet, "vm-subnet", "127.60.0.0/24", "`CIDR` within 127.0.0.0/8 that VMs get addresses from")
	fs.StringVar(&o.root, "root", "", "`folder` for the VMs' files and logs; required with --vm-command")
	o.Logging.Register(fs, "info", "json")
	if err := flags.Parse(fs, args); err != nil {
		return nil, err
	}
	return &o, o.validate()
}

// validate completes the options and returns all errors, each with its flag.
func (o *options) validate() error {
	var errs []error
	var err error
	if o.prefix, err = netip.ParsePrefix(o.subnet); err != nil {
		errs = append(errs, fmt.Errorf("--vm-subnet %q is not a CIDR, such as 127.60.0.0/24", o.subnet))
	}
	if o.command != "" && o.root == "" {
		errs = append(errs, errors.New("--root is missing: --vm-command needs a folder for the VMs' files"))
	}
	if o.project == "" {
		errs = append(errs, errors.New("--project is empty: name the project that the provider config names"))
	}
	if strings.Trim(o.zones, ", ") == "" {
		errs = append(errs, errors.New("--zones is empty: name at least one zone"))
	}
	if o.boot < 0 || o.shutdown < 0 {
		errs = append(errs, errors.New("--boot and --shutdown must not be negative"))
	}
	return errors.Join(append(errs, o.Logging.Validate())...)
}

func (o *options) server() gcestandin.Options {
	return gcestandin.Options{
		Project: o.project,
		Zones:   strings.FieldsFunc(o.zones, func(r rune) bool { return r == ',' || r == ' ' }),
		Timing: gcestandin.Timing{
			Provisioning: o.boot / 2, Staging: o.boot / 2, Insert: o.boot / 2, Delete: o.shutdown,
		},
	}
}
