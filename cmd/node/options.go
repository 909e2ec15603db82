package main

import (
	"errors"
	"fmt"
	"io"
	"net/netip"
	"path/filepath"

	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/internal/flags"
	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/stack/node"
)

const intro = `Runs crawl proxy Pods as processes, each on a loopback address of its own.
For laptops and tests; it needs neither root nor a container runtime.`

// options are the parsed flags.
type options struct {
	flags.Common
	nodeName     string
	subnetText   string
	subnet       netip.Prefix
	root         string
	squid        string
	connectProxy string
}

func parseOptions(args []string, out io.Writer) (*options, error) {
	var o options
	fs := flags.NewSet("node", intro, out)
	o.Register(fs, ":8085")
	fs.StringVar(&o.nodeName, "node-name", "local", "`name` of the node that Pods are bound to")
	fs.StringVar(&o.subnetText, "subnet", "", "`CIDR` within 127.0.0.0/8 that Pods get addresses from, such as 127.41.7.0/24")
	fs.StringVar(&o.root, "root", "", "`folder` for the Pods' configurations and logs, for this node alone")
	fs.StringVar(&o.squid, "squid", node.SquidAuto, "`proxy` to run: auto (squid if it is installed, else the built-in one), builtin, or the path of squid")
	fs.StringVar(&o.connectProxy, "connect-proxy", "connectproxy", "`path` of the built-in proxy's program")
	if err := flags.Parse(fs, args); err != nil {
		return nil, err
	}
	return &o, o.validate()
}

// validate completes the options; its error lists everything that is wrong,
// naming each flag.
func (o *options) validate() error {
	var errs []error
	if o.nodeName == "" {
		errs = append(errs, errors.New("--node-name is empty: give the node a name"))
	}
	var err error
	if o.subnet, err = netip.ParsePrefix(o.subnetText); err != nil {
		errs = append(errs, fmt.Errorf("--subnet %q is not a CIDR, such as 127.41.7.0/24", o.subnetText))
	} else if err := node.CheckSubnet(o.subnet); err != nil {
		errs = append(errs, fmt.Errorf("--subnet: %w", err))
	}
	if o.root == "" {
		errs = append(errs, errors.New("--root is missing: name a folder that this node may fill and clear"))
	} else if o.root, err = filepath.Abs(o.root); err != nil {
		errs = append(errs, fmt.Errorf("--root: %w", err))
	}
	if o.squid == "" {
		errs = append(errs, errors.New("--squid is empty: want auto, builtin or a path"))
	}
	return errors.Join(append(errs, o.Common.Validate())...)
}
