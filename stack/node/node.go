// Package node is a Kubernetes node without containers, for laptops and tests:
// it binds Pods to itself and runs each as a process on a loopback address of
// its own. It runs one kind of Pod, the crawl proxy: squid where it is
// installed, else the built-in proxy, with the configuration that the Pod
// carries in its environment.
package node

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"unicode"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	listers "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/utils/clock"

	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/stack/filelock"
)

// workers is the number of concurrent reconciles. Slow work, such as stopping a process, happens
// elsewhere.
const workers = 4

// Config configures a node.
type Config struct {
	Name string // of the node, to which Pods are bound
	// Subnet in 127.0.0.0/8 with the addresses of Pods, as CheckSubnet requires. Its first 16
	// addresses are not used.
	Subnet netip.Prefix
	// Root is the absolute path of the folder for the Pods' folders, created if missing. One node
	// at a time may use it.
	Root     string
	Launcher *Launcher            // starts the proxies
	Client   kubernetes.Interface // of the API server
	Clock    clock.Clock          // for times and restart backoff
	Log      *slog.Logger         // receives the events of Pods
}

func (c *Config) validate() error {
	var errs []error
	if c.Name == "" {
		errs = append(errs, errors.New("node name is empty"))
	}
	errs = append(errs, CheckSubnet(c.Subnet))
	if !filepath.IsAbs(c.Root) {
		errs = append(errs, fmt.Errorf("root folder %q is not an absolute path", c.Root))
	}
	if strings.ContainsFunc(c.Root, func(r rune) bool { return unicode.IsSpace(r) || r == '"' || r == '#' }) {
		errs = append(errs, fmt.Errorf("root folder %q: squid's configuration cannot name paths with spaces, quotes or #", c.Root))
	}
	return errors.Join(errs...)
}

// Node runs Pods.
type Node struct {
	cfg       Config
	hostIP    string
	addresses *addresses
	pods      listers.PodLister
	queue     workqueue.TypedRateLimitingInterface[types.NamespacedName]
	synced    atomic.Bool
	running   sync.WaitGroup // containers

	mu         sync.Mutex
	containers map[types.UID]*container
}

// New returns a node, or an error that lists everything that is wrong with cfg.
func New(cfg Config) (*Node, error) {
	if err := cfg.validate(); err != nil {
		return nil, fmt.Errorf("node: %w", err)
	}
	return &Node{
		cfg:        cfg,
		hostIP:     offset(cfg.Subnet.Addr(), 1).String(),
		addresses:  newAddresses(cfg.Subnet),
		containers: map[types.UID]*container{},
	}, nil
}

// Ready returns nil once the cache of Pods has synced.
func (n *Node) Ready() error {
	if !n.synced.Load() {
		return errors.New("the Pods have not been listed yet")
	}
	return nil
}

// Run runs Pods until ctx ends; then it stops their processes, keeps the Pods, and returns nil. A
// later node of that name restarts them.
func (n *Node) Run(ctx context.Context) error {
	lock, err := n.openRoot()
	if err != nil {
		return err
	}
	defer func() { _ = lock.Release() }()

	factory := informers.NewSharedInformerFactory(n.cfg.Client, 0)
	informer := factory.Core().V1().Pods()
	n.pods = informer.Lister()
	n.queue = workqueue.NewTypedRateLimitingQueue(workqueue.DefaultTypedControllerRateLimiter[types.NamespacedName]())
	if _, err := informer.Informer().AddEventHandler(n.handler()); err != nil {
		return fmt.Errorf("watch Pods: %w", err)
	}
	factory.Start(ctx.Done())
	defer factory.Shutdown()
	if !cache.WaitForCacheSync(ctx.Done(), informer.Informer().HasSynced) {
		return nil // ctx ended
	}
	if err := n.adopt(); err != nil {
		return err
	}
	n.synced.Store(true)
	n.cfg.Log.Info("node ready", "name", n.cfg.Name, "subnet", n.cfg.Subnet.String(), "proxy", n.cfg.Launcher.Name, "program", n.cfg.Launcher.Path)
	n.work(ctx)
	return nil
}

// openRoot creates the folder and locks it for this node. The users of proxies must be able to
// enter it, but not to list it.
func (n *Node) openRoot() (*filelock.Lock, error) {
	if err := MakeRoot(n.cfg.Root); err != nil {
		return nil, fmt.Errorf("make the node's root folder: %w", err)
	}
	if err := canEnter(n.cfg.Root, n.cfg.Launcher.Credential); err != nil {
		return nil, fmt.Errorf("the node's root folder %s: %w", n.cfg.Root, err)
	}
	lock, err := filelock.Try(filepath.Join(n.cfg.Root, ".lock"))
	if errors.Is(err, filelock.ErrHeld) {
		return nil, fmt.Errorf("another node uses the root folder %s: %w; give each node its own", n.cfg.Root, err)
	}
	return lock, err
}

// work reconciles Pods until ctx ends and all processes have exited.
func (n *Node) work(ctx context.Context) {
	var wg sync.WaitGroup
	for range workers {
		wg.Go(func() {
			for n.handleNext(ctx) {
			}
		})
	}
	<-ctx.Done()
	n.queue.ShutDown()
	wg.Wait()
	n.running.Wait()
}

func (n *Node) handleNext(ctx context.Context) bool {
	key, shutdown := n.queue.Get()
	if shutdown {
		return false
	}
	defer n.queue.Done(key)
	if err := n.reconcile(ctx, key); err != nil && ctx.Err() == nil {
		n.log(key).Warn("reconcile failed, will retry", "err", err)
		n.queue.AddRateLimited(key)
		return true
	}
	n.queue.Forget(key)
	return true
}

func (n *Node) log(key types.NamespacedName) *slog.Logger {
	return n.cfg.Log.With("namespace", key.Namespace, "pod", key.Name)
}

func (n *Node) handler() cache.ResourceEventHandler {
	enqueue := func(obj any) {
		if key, err := cache.DeletionHandlingObjectToName(obj); err == nil {
			n.queue.Add(key.AsNamespacedName())
		}
	}
	return cache.ResourceEventHandlerFuncs{
		AddFunc:    enqueue,
		UpdateFunc: func(_, obj any) { enqueue(obj) },
		DeleteFunc: enqueue,
	}
}

var (
	containersDesc = prometheus.NewDesc("proxy_operator_node_containers", "Containers of this node by state.", []string{"state"}, nil)
	addressesDesc  = prometheus.NewDesc("proxy_operator_node_addresses_in_use", "Addresses of the node's subnet that Pods have.", nil, nil)
)

// Collector returns the node's metrics. It reads the node at scrape time, because gauges that are
// incremented and decremented drift.
func (n *Node) Collector() prometheus.Collector {
	return prometheus.CollectorFunc(func(ch chan<- prometheus.Metric) {
		running, waiting := n.counts()
		ch <- prometheus.MustNewConstMetric(containersDesc, prometheus.GaugeValue, float64(running), "running")
		ch <- prometheus.MustNewConstMetric(containersDesc, prometheus.GaugeValue, float64(waiting), "waiting")
		ch <- prometheus.MustNewConstMetric(addressesDesc, prometheus.GaugeValue, float64(n.addresses.inUse()))
	})
}

func (n *Node) counts() (running, waiting int) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, c := range n.containers {
		if c.snapshot().Current.Running != nil {
			running++
		} else {
			waiting++
		}
	}
	return running, waiting
}
