package chaos

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/url"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"k8s.io/client-go/kubernetes"
	"k8s.io/utils/clock"

	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/internal/stores"
	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/stack"
	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/stack/chaos/external"
	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/stack/chaos/fault"
	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/stack/chaos/fleet"
	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/stack/chaos/history"
	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/stack/chaos/plan"
	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/stack/chaos/relay"
	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/stack/target"
)

const (
	domainFile  = "file"
	domainRedis = "redis"

	relayIP     = "127.0.0.1"
	diskSize    = 4 << 20
	restartTime = 5 * time.Second // about how long a program is away that exited unexpectedly
)

// lab is everything that a campaign starts.
type lab struct {
	cfg   Config
	dir   *stack.Scratch
	redis *stores.Redis
	disk  *stores.Disk // nil without the right to mount one
	stack *stack.Stack
	relay *relay.Relay
	fleet *fleet.Fleet
	kube  kubernetes.Interface

	recorder *history.Recorder

	// targetURL stays the same while the target is closed.
	targetURL string

	ends     []func() error // stop what was started, in the order of the starts
	keepLogs bool

	mu    sync.Mutex
	exits []string // programs that exited unexpectedly, with their errors
}

// open starts everything. The caller must call close, also after an error.
func (l *lab) open(ctx context.Context) error {
	var err error
	if l.dir, err = stack.NewScratch(l.cfg.Stack.Home); err != nil {
		return fmt.Errorf("make the campaign's folder: %w", err)
	}
	l.ends = append(l.ends, l.dir.Remove)
	// Acknowledged writes survive a kill.
	if l.redis, err = stores.StartRedis(ctx, l.dir.Path(), "appendonly yes", "appendfsync always"); err != nil {
		return err
	}
	l.ends = append(l.ends, l.redis.Stop)
	l.disk, err = stores.NewDisk(diskSize)
	switch {
	case err == nil:
		l.ends = append(l.ends, l.disk.Close)
	case !errors.Is(err, syscall.EPERM) && !errors.Is(err, syscall.ENOSYS):
		return err
	}
	if l.stack, err = stack.Start(ctx, l.stackConfig()); err != nil {
		return err
	}
	l.ends = append(l.ends, func() error { return l.stack.Stop(l.keepLogs) })
	l.targetURL = l.stack.Facts().TargetURL
	if err := l.record(); err != nil {
		return err
	}
	if l.kube, err = kubernetes.NewForConfig(l.stack.RESTConfig()); err != nil {
		return fmt.Errorf("client: %w", err)
	}
	return l.openFleet()
}

// record starts the history.
func (l *lab) record() error {
	notes := map[string]string{
		"driver": l.stack.Driver(), "disk": "a file system of its own",
		"resync": resync.String(), "cooldown": cooldown.String(), "maxTTL": maxTTL.String(),
	}
	if l.disk == nil {
		notes["disk"] = "RLIMIT_FSIZE"
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	var err error
	l.recorder, err = history.Start(l.cfg.History, clock.RealClock{}, history.Begin{Seed: l.cfg.Seed, Notes: notes})
	if err == nil {
		l.ends = append(l.ends, l.recorder.Close)
	}
	return err
}

func (l *lab) stackConfig() stack.Config {
	cfg := l.cfg.Stack
	leases := filepath.Join(l.dir.Path(), "leases")
	if l.disk != nil {
		leases = filepath.Join(l.disk.Path(), "leases")
	}
	cfg.Discoveries = []stack.Discovery{
		{Name: plan.DiscoveryFile, LeaseStore: "file:" + leases},
		{Name: plan.DiscoveryRedis, LeaseStore: l.redis.URL()},
		{Name: plan.DiscoveryOther, LeaseStore: l.redis.URL()},
	}
	cfg.ResyncPeriod = resync
	cfg.HookRelay = l.startRelay
	cfg.Ended = l.recordExit
	cfg.Flags = programFlags()
	return cfg
}

// programFlags shorten the times of a cluster: a campaign is short.
func programFlags() map[string][]string {
	leases := []string{"--lease-cooldown", cooldown.String(), "--max-lease-ttl", maxTTL.String()}
	return map[string][]string{
		plan.Webhooks: {"--quota-retry", "3s"},
		plan.Cloud: {
			"--quota-retry", "3s", "--gc-interval", "5s", "--gc-min-age", "20s",
			"--mutations-per-second", "20", "--mutations-burst", "60",
		},
		plan.DiscoveryFile: leases, plan.DiscoveryRedis: leases, plan.DiscoveryOther: leases,
	}
}

func (l *lab) startRelay(hooks string) (string, error) {
	r, err := relay.Start(relayIP, hooks)
	if err != nil {
		return "", err
	}
	l.relay = r
	l.ends = append(l.ends, r.Close)
	return r.Addr(), nil
}

// recordExit records an unexpected exit of a program like a kill: the program is away
// for a moment.
func (l *lab) recordExit(name string, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.exits = append(l.exits, fmt.Sprintf("%s: %v", name, err))
	if l.recorder != nil {
		now := l.recorder.Now()
		l.recorder.Fault(history.Fault{
			Family: history.Kill, Subject: name, From: now - time.Second, To: now + restartTime, Detail: "it exited unexpectedly",
		})
	}
}

// unexpectedExits are the programs that exited unexpectedly, with their errors.
func (l *lab) unexpectedExits() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Clone(l.exits)
}

func (l *lab) openFleet() error {
	impostor, err := target.New(l.stack.VisitorIP(), slog.New(slog.DiscardHandler))
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- impostor.Run(ctx) }()
	l.ends = append(l.ends, func() error { cancel(); return <-done })
	l.fleet, err = fleet.New(fleet.Config{
		Kube: l.stack.RESTConfig(), Namespace: l.stack.Facts().Namespace,
		Provider: l.stack.Facts().Provider, CloudProvider: l.stack.Facts().CloudProvider,
		ProbeURL: l.targetURL + "/generate_204", ExternalIP: l.stack.VisitorIP(),
		Sites:    external.Sites{Real: hostOf(l.targetURL), Impostor: hostOf(impostor.URL)},
		External: l.cfg.External, Pods: l.cfg.Pods, VMs: l.cfg.VMs, Recorder: l.recorder,
	})
	if err == nil {
		l.ends = append(l.ends, l.fleet.Close)
	}
	return err
}

func hostOf(root string) string {
	u, err := url.Parse(root)
	if err != nil {
		return strings.TrimPrefix(root, "https://")
	}
	return u.Host
}

// faults returns what faults act on.
func (l *lab) faults() *fault.Lab {
	return &fault.Lab{
		Programs: l.stack, Fleet: l.fleet, Relay: l.relay, Redis: l.redis, Disk: l.disk, Socket: l.stack.CloudSocket(),
		ComputeURL: l.stack.CloudEngineURL(), Kube: l.kube, PodRoot: l.stack.Facts().PodRoot, VMRoot: l.stack.VMRoot(),
	}
}

// close stops everything and removes all files but the history, and the logs with
// keepLogs.
func (l *lab) close(keepLogs bool) error {
	l.keepLogs = keepLogs
	var errs []error
	for _, end := range slices.Backward(l.ends) {
		errs = append(errs, end())
	}
	return errors.Join(errs...)
}
