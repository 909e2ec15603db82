package main

import (
	"context"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/internal/flags"
	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/stack"
	campaign "gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/stack/chaos"
	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/stack/controlplane"
	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/stack/node"
)

const chaosIntro = `Starts the whole system with hundreds of Proxies of all kinds and crawlers that
use them, breaks it in every way for a while, lets it recover, and checks from
outside that it kept its promises: what it must never do, and what must be so in
the end. All that was done and seen is in the history. The same seed gives the
same faults. Needs redis-server or valkey-server.`

// chaosOptions are the flags of chaos.
type chaosOptions struct {
	options
	campaign.Config
	check string
}

func parseChaos(args []string, out io.Writer) (*chaosOptions, error) {
	var o chaosOptions
	fs := flags.NewSet("stack chaos", chaosIntro, out)
	o.register(fs, node.SquidBuiltin) // it is light: there are many
	fs.Uint64Var(&o.Seed, "seed", 0, "`number` that faults, times and subjects follow from; 0 takes one at random")
	fs.DurationVar(&o.Duration, "duration", 15*time.Minute, "`time` from when all is up to the verdict; at least "+campaign.LeastDuration.String())
	fs.IntVar(&o.External, "external", 120, "`number` of External Proxies")
	fs.IntVar(&o.Pods, "pods", 40, "`number` of Proxies on Pods")
	fs.IntVar(&o.VMs, "vms", 40, "`number` of Proxies on VMs")
	fs.StringVar(&o.History, "history", "", "`file` that everything is written to, which must not exist; empty is one in the folder for temporary files, named by the seed")
	fs.StringVar(&o.check, "check", "", "`file` with the history of an earlier campaign: check that again, and run nothing")
	if err := flags.Parse(fs, args); err != nil {
		return nil, err
	}
	// The campaign's Pods run the light proxy unless --squid says otherwise, also
	// where the walks have to run squid.
	if o.squid == node.SquidBuiltin {
		o.requireSquid = false
	}
	return &o, errors.Join(o.validate(), o.complete())
}

// complete fills in what is chosen at random or follows from the rest.
func (o *chaosOptions) complete() error {
	var errs []error
	if o.Duration < campaign.LeastDuration {
		errs = append(errs, fmt.Errorf("--duration %s: want %s or more, for all faults to have their turn", o.Duration, campaign.LeastDuration))
	}
	if o.External < 10 || o.Pods < 5 || o.VMs < 5 || o.Pods > 200 || o.VMs > 200 {
		errs = append(errs, errors.New("--external wants 10 or more, --pods and --vms 5 to 200"))
	}
	if o.Seed == 0 {
		var b [8]byte
		_, _ = rand.Read(b[:]) // never fails
		o.Seed = binary.NativeEndian.Uint64(b[:])>>1 | 1
	}
	if o.History == "" {
		o.History = filepath.Join(os.TempDir(), fmt.Sprintf("chaos-%d-%d.jsonl", o.Seed, os.Getpid()))
	}
	return errors.Join(errs...)
}

// chaos runs a campaign on a stack of its own.
func chaos(ctx context.Context, args []string, out io.Writer) error {
	o, err := parseChaos(args, out)
	if err != nil {
		return err
	}
	if o.check != "" {
		return campaign.Check(o.check, out)
	}
	o.assets, err = controlplane.Ensure(ctx, out)
	if err != nil {
		return err
	}
	o.Config.Stack = o.stackConfig(out)
	if err := campaign.Run(ctx, o.Config, out); err != nil {
		return err
	}
	fmt.Fprintln(out, "All promises were kept. Stopped everything; nothing but the history is left.")
	return nil
}

func (o *options) stackConfig(out io.Writer) stack.Config {
	return stack.Config{
		BinDir:           o.binDir,
		Squid:            o.squid,
		Metacontroller:   o.metacontroller,
		ApplyStrategy:    o.strategy,
		CloudInitSecrets: o.cloudInitSecrets,
		Assets:           o.assets,
		Log:              o.log,
		Progress:         out,
	}
}
