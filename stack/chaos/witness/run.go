// Package witness observes a system under test from outside and records it: the API
// server's objects, the VM table of the Compute Engine stand-in, the process table, the
// figures of every process, and the CPU pressure. It changes nothing. It records a gap
// while it cannot observe.
package witness

import (
	"context"
	"errors"
	"time"

	"golang.org/x/sync/errgroup"
	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"

	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/stack/chaos/history"
)

// Program is one process to sample.
type Program struct {
	Name       string // in records
	PID        int    // 0 while it does not run
	MetricsURL string // "" without metrics
}

// Config of the witness. All fields but the periods are required.
type Config struct {
	Recorder  *history.Recorder
	Clock     clock.WithTicker
	Kube      *rest.Config
	Namespace string // of all objects
	VMsURL    string // the VM table, /control/vms of the stand-in
	// PodRoot and VMRoot have a folder for each Pod and VM, which identifies processes.
	PodRoot, VMRoot string
	// Programs returns the current processes. It is called for every sample.
	Programs func() []Program
	// VMPeriod, ProcessPeriod, MetricsPeriod and PressurePeriod are the polling periods:
	// 200 ms, 1 s, 2 s and 1 s when 0.
	VMPeriod, ProcessPeriod, MetricsPeriod, PressurePeriod time.Duration
}

func (c *Config) complete() error {
	if c.Recorder == nil || c.Clock == nil || c.Kube == nil || c.Namespace == "" || c.VMsURL == "" ||
		c.PodRoot == "" || c.VMRoot == "" || c.Programs == nil {
		return errors.New("witness: a required field is not set")
	}
	for period, otherwise := range map[*time.Duration]time.Duration{
		&c.VMPeriod: 200 * time.Millisecond, &c.ProcessPeriod: time.Second,
		&c.MetricsPeriod: 2 * time.Second, &c.PressurePeriod: time.Second,
	} {
		if *period == 0 {
			*period = otherwise
		}
	}
	return nil
}

// Run observes until ctx ends. It returns only errors of the Config.
func Run(ctx context.Context, cfg Config) error {
	if err := cfg.complete(); err != nil {
		return err
	}
	watchers, err := newWatchers(&cfg)
	if err != nil {
		return err
	}
	group, ctx := errgroup.WithContext(ctx)
	for _, w := range watchers {
		group.Go(func() error { w.run(ctx); return nil })
	}
	vms, processes, figures, pressure := newVMTable(&cfg), &processTable{cfg: &cfg}, newFigures(&cfg), &pressureGauge{cfg: &cfg}
	for period, look := range map[*time.Duration]func(context.Context){
		&cfg.VMPeriod: vms.look, &cfg.ProcessPeriod: processes.look,
		&cfg.MetricsPeriod: figures.look, &cfg.PressurePeriod: pressure.look,
	} {
		group.Go(func() error { cfg.every(ctx, *period, look); return nil })
	}
	return group.Wait()
}

// every calls look now and then each period.
func (c *Config) every(ctx context.Context, period time.Duration, look func(context.Context)) {
	tick := c.Clock.NewTicker(period)
	defer tick.Stop()
	for {
		look(ctx)
		select {
		case <-ctx.Done():
			return
		case <-tick.C():
		}
	}
}

// gap is a time in which an observer gets no data.
type gap struct {
	observer string
	recorder *history.Recorder
	from     time.Duration // start
	blind    bool
	why      string
}

// fail starts the gap, ok ends and records it.
func (g *gap) fail(err error) {
	if !g.blind {
		g.blind, g.why, g.from = true, err.Error(), g.recorder.Now()
	}
}

func (g *gap) ok() {
	if g.blind {
		g.recorder.Add(history.Record{Gap: &history.Gap{Observer: g.observer, From: g.from, To: g.recorder.Now(), Detail: g.why}})
	}
	g.blind = false
}
