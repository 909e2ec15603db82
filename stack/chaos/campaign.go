package chaos

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
	"k8s.io/utils/clock"

	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/stack/chaos/crawl"
	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/stack/chaos/external"
	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/stack/chaos/fleet"
	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/stack/chaos/history"
	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/stack/chaos/plan"
	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/stack/chaos/witness"
	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/stack/supervise"
)

const (
	// fillTimeout is for all Proxies to become Ready, on a busy machine.
	fillTimeout  = 4 * time.Minute
	readyPoll    = 200 * time.Millisecond
	recoveryPoll = time.Second
	// dying is how long some proxies are dead in the recovery stage: longer than the
	// checker's staleGrace and the detection limit of a dead proxy.
	dying = 40 * time.Second

	// Crawlers and their calls a second, per lease store.
	crawlers  = 16
	crawlRate = 25
)

// campaign is one run.
type campaign struct {
	cfg Config
	lab *lab
	out io.Writer

	player  *player
	printMu sync.Mutex
}

func (c *campaign) print(format string, args ...any) {
	c.printMu.Lock()
	defer c.printMu.Unlock()
	fmt.Fprintf(c.out, format+"\n", args...)
}

// run runs all stages, from an empty stack to the end of the history.
func (c *campaign) run(ctx context.Context) error {
	p, err := plan.New(plan.Config{
		Seed: c.cfg.Seed, Length: c.cfg.faults(),
		External: c.lab.fleet.External(), Pods: c.lab.fleet.Pods(), VMs: c.lab.fleet.VMs(),
	})
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	watching, stopWatching := context.WithCancel(context.WithoutCancel(ctx))
	defer stopWatching()
	var observers errgroup.Group
	observers.Go(func() error { c.lab.fleet.Watch(watching); return nil })
	observers.Go(func() error { return witness.Run(watching, c.witnessConfig()) })
	observers.Go(func() error {
		if err := c.lab.stack.Wait(watching); err != nil {
			cancel(err)
		}
		return nil
	})
	err = c.stages(ctx, p)
	if cause := context.Cause(ctx); err != nil && cause != nil {
		err = errors.Join(cause, err)
	}
	stopWatching()
	return errors.Join(err, observers.Wait())
}

func (c *campaign) stages(ctx context.Context, p *plan.Plan) error {
	c.enter(history.StageFill)
	if err := c.fill(ctx); err != nil {
		return err
	}
	loading, stopLoad := context.WithCancel(ctx)
	defer stopLoad()
	var load errgroup.Group
	for _, cfg := range c.crawls() {
		load.Go(func() error { return crawl.Run(loading, cfg) })
	}
	err := c.underLoad(ctx, p)
	stopLoad()
	if err := errors.Join(err, load.Wait()); err != nil {
		return err
	}
	c.enter(history.StageSettled)
	if !supervise.Sleep(ctx, settling) {
		return ctx.Err()
	}
	c.enter(history.StageEnd)
	return nil
}

// underLoad runs the stages with crawlers.
func (c *campaign) underLoad(ctx context.Context, p *plan.Plan) error {
	c.enter(history.StageBaseline)
	if !supervise.Sleep(ctx, baseline) {
		return ctx.Err()
	}
	c.enter(history.StageFaults)
	faults, begin := c.lab.faults(), time.Now()
	c.player = &player{
		fault: faults.New, act: c.lab.fleet.Do, recorder: c.lab.recorder, print: c.print,
		begin: begin, end: begin.Add(c.cfg.faults()), tally: map[string]int{},
	}
	if err := errors.Join(c.player.play(ctx, p), ctx.Err()); err != nil {
		return err
	}
	c.enter(history.StageRecovery)
	deaths := make(chan error, 1)
	go func() { deaths <- c.lastDeaths(ctx) }()
	return errors.Join(c.awaitRecovery(ctx), <-deaths)
}

// lastDeaths has some External proxies die, hang and lie while the system is up. In the
// fault stage a process of the verdict path is nearly always away, which excuses leases
// on dead proxies.
func (c *campaign) lastDeaths(ctx context.Context) error {
	modes := []external.Mode{external.Refuse, external.Hang, external.Elsewhere, external.Junk}
	names := c.lab.fleet.External()
	names = names[:max(1, len(names)/10)]
	var errs []error
	for i, name := range names {
		mode := modes[i%len(modes)]
		errs = append(errs, c.lab.fleet.Switch(name, mode))
		over := c.lab.recorder.Fault(history.Fault{Family: history.ProxyTruth, Subject: c.lab.fleet.FullName(name), Detail: string(mode)})
		defer over()
	}
	supervise.Sleep(ctx, dying)
	for _, name := range names {
		errs = append(errs, c.lab.fleet.Switch(name, external.Serve))
	}
	return errors.Join(errs...)
}

// awaitRecovery creates the missing Proxies, edits those that failed permanently, and
// waits until all are Ready, at most quietMost.
func (c *campaign) awaitRecovery(ctx context.Context) error {
	began := time.Now()
	act := began
	if err := c.lab.fleet.Complete(ctx); err != nil {
		return err
	}
	for supervise.Sleep(ctx, recoveryPoll) {
		if c.lab.fleet.Mend(ctx) > 0 {
			act = time.Now()
		}
		left := c.lab.fleet.NotReady()
		switch since := time.Since(began); {
		case since >= quietMost:
			c.print("after %s these are not Ready: %s", quietMost, few(left))
			return nil
		case since >= quiet && len(left) == 0 && time.Since(act) >= quietAct:
			return nil
		}
	}
	return ctx.Err()
}

// fill creates the Proxies and waits until all are Ready.
func (c *campaign) fill(ctx context.Context) error {
	began := time.Now()
	ctx, cancel := context.WithTimeout(ctx, fillTimeout)
	defer cancel()
	if err := c.lab.fleet.Complete(ctx); err != nil {
		return err
	}
	for {
		left := c.lab.fleet.NotReady()
		if len(left) == 0 {
			c.print("%d Proxies are Ready after %s", len(c.lab.fleet.Names()), time.Since(began).Round(100*time.Millisecond))
			return nil
		}
		if !supervise.Sleep(ctx, readyPoll) {
			return fmt.Errorf("not all Proxies became Ready within %s: %s", fillTimeout, few(left))
		}
	}
}

// few lists at most ten of the Proxies that are not Ready.
func few(left map[string]string) string {
	var some []string
	for name, how := range left {
		some = append(some, name+" "+how)
	}
	slices.Sort(some)
	if len(some) > 10 {
		some = append(some[:10], fmt.Sprintf("and %d more", len(some)-10))
	}
	return strings.Join(some, ", ")
}

func (c *campaign) enter(name history.StageName) {
	c.lab.recorder.Add(history.Record{Stage: &history.Stage{Name: name}})
	c.print("%7.1fs %s", c.lab.recorder.Now().Seconds(), name)
}

func (c *campaign) crawls() []crawl.Config {
	urls := c.lab.stack.DiscoveryURLs()
	base := crawl.Config{
		Recorder: c.lab.recorder, Token: c.lab.stack.Facts().Token, Crawlers: crawlers, Rate: crawlRate, Seed: c.cfg.Seed,
		TargetURL: c.lab.targetURL, TargetCA: c.lab.stack.Facts().TargetCA, Selectors: fleet.Selectors(),
	}
	file, redis := base, base
	file.Domain, redis.Domain = domainFile, domainRedis
	file.Replicas = []crawl.Replica{{Name: plan.DiscoveryFile, URL: urls[plan.DiscoveryFile]}}
	for _, name := range []string{plan.DiscoveryRedis, plan.DiscoveryOther} {
		redis.Replicas = append(redis.Replicas, crawl.Replica{Name: name, URL: urls[name]})
	}
	return []crawl.Config{file, redis}
}

func (c *campaign) witnessConfig() witness.Config {
	return witness.Config{
		Recorder: c.lab.recorder, Clock: clock.RealClock{}, Kube: c.lab.stack.RESTConfig(), Namespace: c.lab.stack.Facts().Namespace,
		VMsURL: c.lab.stack.Facts().CloudVMsURL, PodRoot: c.lab.stack.Facts().PodRoot, VMRoot: c.lab.stack.VMRoot(),
		Programs: c.programs,
	}
}

// programs are the processes whose resource use must return to its baseline.
func (c *campaign) programs() []witness.Program {
	metrics := c.lab.stack.MetricsURLs()
	var out []witness.Program
	for _, name := range []string{
		plan.Webhooks, plan.Cloud, plan.Prober, plan.Metacontroller, plan.DiscoveryFile, plan.DiscoveryRedis, plan.DiscoveryOther,
	} {
		program := name
		if name == plan.Metacontroller {
			program = c.lab.stack.Driver()
		}
		pid, _ := c.lab.stack.PID(program) // 0 while it does not run
		out = append(out, witness.Program{Name: name, PID: pid, MetricsURL: metrics[program]})
	}
	return out
}
