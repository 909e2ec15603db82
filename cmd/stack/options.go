package main

import (
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"

	flag "github.com/spf13/pflag"

	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/internal/flags"
	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/stack/controlplane"
	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/stack/node"
	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/stack/upstream"
)

// options are the flags of demo and up.
type options struct {
	flags.Logging
	binDir       string
	squid        string
	requireSquid bool
	// metacontroller is the real one's path, empty for the stand-in.
	metacontroller   string
	strategyName     string
	strategy         upstream.Strategy
	cloudInitSecrets bool
	log              *slog.Logger
	assets           controlplane.Assets
}

func parse(name, intro string, args []string, out io.Writer) (*options, error) {
	var o options
	fs := flags.NewSet(name, intro, out)
	o.register(fs, node.SquidAuto)
	if err := flags.Parse(fs, args); err != nil {
		return nil, err
	}
	return &o, o.validate()
}

// register adds the flags that all stacks have; squid is the default of --squid.
func (o *options) register(fs *flag.FlagSet, squid string) {
	fs.StringVar(&o.binDir, "bin-dir", "", "`folder` of our programs; empty is the one that this program is in")
	fs.StringVar(&o.squid, "squid", squid, "what serves as `proxy` in Pods: auto (squid if it is installed, else the built-in one), builtin, or the path of squid")
	fs.BoolVar(&o.requireSquid, "require-squid", false, "fail when Pods run on the built-in proxy")
	fs.StringVar(&o.metacontroller, "metacontroller", os.Getenv(upstream.ProgramEnv), "`path` of the real Metacontroller's binary; empty runs the stand-in. "+upstream.ProgramEnv+" sets it as well")
	fs.StringVar(&o.strategyName, "apply-strategy", string(upstream.DynamicApply), "the real Metacontroller's `strategy` of writing children: dynamic-apply or server-side-apply")
	fs.BoolVar(&o.cloudInitSecrets, "cloud-init-secrets", false, "let Proxies take cloud-init from labelled Secrets")
	o.Logging.Register(fs, "warn", "text")
}

// validate completes the options.
func (o *options) validate() error {
	err := o.validateCommon()
	strategy, strategyErr := upstream.ParseStrategy(o.strategyName)
	o.strategy = strategy
	if strategyErr != nil {
		err = errors.Join(err, fmt.Errorf("--apply-strategy %w", strategyErr))
	}
	if o.requireSquid && o.squid == node.SquidBuiltin {
		err = errors.Join(err, errors.New("--require-squid and --squid builtin exclude each other"))
	}
	return err
}

// validateCommon completes what all commands have.
func (o *options) validateCommon() error {
	log, err := o.Logger(os.Stderr)
	o.log = log
	if o.binDir != "" {
		return err
	}
	self, selfErr := os.Executable()
	if selfErr != nil {
		return errors.Join(err, fmt.Errorf("--bin-dir is empty, and this program's own folder is unknown: %w", selfErr))
	}
	o.binDir = filepath.Dir(self)
	return err
}
