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

// Program is one of the processes whose figures are taken.
type Program struct {
	// Name in records, as the campaign calls it.
	Name string
	// PID of the process that runs now, 0 while none does.
	PID int
	// MetricsURL shows its metrics, "" when it has none.
	MetricsURL string
}

// Config says what to look at. All fields are required, but for the periods.
type Config struct {
	Recorder *history.Recorder
	Clock    clock.WithTicker
	// Kube is how to reach the API server; Namespace has all that is looked at.
	Kube      *rest.Config
	Namespace string
	// VMsURL shows the VM table, as /control/vms of the stand-in does.
	VMsURL string
	// Proc is where procfs is mounted.
	Proc string
	// PodRoot and VMRoot have a folder for each Pod and VM; processes are known
	// by it.
	PodRoot, VMRoot string
	// Programs says what runs now. It is called for every sample.
	Programs func() []Program
	// VMPeriod, ProcessPeriod, MetricsPeriod and PressurePeriod are between two
	// looks: 200 ms, 1 s, 5 s and 1 s when 0.
	VMPeriod, ProcessPeriod, MetricsPeriod, PressurePeriod time.Duration
}

func (c *Config) complete() error {
	if c.Recorder == nil || c.Clock == nil || c.Kube == nil || c.Namespace == "" || c.VMsURL == "" || c.Proc == "" ||
		c.PodRoot == "" || c.VMRoot == "" || c.Programs == nil {
		return errors.New("witness: a required field is not set")
	}
	for period, otherwise := range map[*time.Duration]time.Duration{
		&c.VMPeriod: 200 * time.Millisecond, &c.ProcessPeriod: time.Second,
		&c.MetricsPeriod: 5 * time.Second, &c.PressurePeriod: time.Second,
	} {
		if *period == 0 {
			*period = otherwise
		}
	}
	return nil
}

// Run watches until ctx ends. Errors are those of a wrong Config: what cannot be
// seen is recorded as a gap.
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

// every looks at once and then each period.
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

// gap is a time in which an observer sees nothing.
type gap struct {
	observer string
	recorder *history.Recorder
	from     time.Duration // since when it sees nothing
	blind    bool
	why      string
}

// fail tells that nothing was seen, and ok that something was.
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
