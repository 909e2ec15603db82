package node

import (
	"context"
	"errors"
	"fmt"
	"net/netip"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"

	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/api/v1alpha1"
)

// adopt reserves the addresses of the Pods of an earlier node, before new Pods can take them, and
// removes what deleted Pods left behind.
func (n *Node) adopt() error {
	pods, err := n.pods.List(labels.Everything())
	if err != nil {
		return fmt.Errorf("list Pods: %w", err)
	}
	known := map[types.UID]bool{}
	for _, pod := range pods {
		if actionFor(pod, n.cfg.Name) != runPod {
			continue
		}
		known[pod.UID] = true
		if prefer := previousAddress(pod); n.addresses.contains(prefer) {
			if _, err := n.addresses.take(pod.UID, prefer); err != nil {
				return fmt.Errorf("keep the address of Pod %s/%s: %w", pod.Namespace, pod.Name, err)
			}
		}
	}
	return RemoveFolders(n.cfg.Root, func(uid types.UID) bool { return known[uid] })
}

// container returns the container of the Pod, and starts it when there is none. It returns nil when
// the Pod cannot run.
func (n *Node) container(ctx context.Context, pod *corev1.Pod, config string) (*container, error) {
	n.mu.Lock()
	c := n.containers[pod.UID]
	n.mu.Unlock()
	if c != nil {
		return c, nil
	}
	addr, err := n.addresses.take(pod.UID, previousAddress(pod))
	if err != nil {
		return nil, errors.Join(err, n.refuse(ctx, pod, reasonNoAddress, err)) // retried: an address may become free
	}
	dir := newPodDir(n.cfg.Root, pod.UID)
	adapted, err := adaptConfig(config, addr, dir)
	if err == nil {
		_, err = n.cfg.Launcher.args(dir, adapted)
	}
	if err != nil {
		n.addresses.release(pod.UID, addr)
		return nil, n.refuse(ctx, pod, reasonConfigError, fmt.Errorf("%s: %w", v1alpha1.PodConfigEnv, err))
	}
	c = n.newContainer(pod, addr, dir, adapted)
	n.mu.Lock()
	n.containers[pod.UID] = c
	n.mu.Unlock()
	n.running.Go(func() { n.host(ctx, c) })
	return c, nil
}

// previousAddress is the address in the Pod's status, or invalid: clients have it cached, so it
// must survive a restart of the node.
func previousAddress(pod *corev1.Pod) netip.Addr {
	addr, _ := netip.ParseAddr(pod.Status.PodIP)
	return addr
}

func (n *Node) newContainer(pod *corev1.Pod, addr netip.Addr, dir podDir, config string) *container {
	key := cache.MetaObjectToName(pod).AsNamespacedName()
	return &container{
		pod: key, uid: pod.UID, addr: addr, dir: dir, config: config,
		launch:   n.cfg.Launcher,
		clock:    n.cfg.Clock,
		log:      n.log(key),
		changed:  func() { n.queue.Add(key) },
		stopping: make(chan struct{}),
		state:    inherited(pod, n.now()),
	}
}

// host runs the container and cleans up after it. When the node itself stops, the Pod's folder
// stays.
func (n *Node) host(ctx context.Context, c *container) {
	c.run(ctx)
	select {
	case <-c.stopping:
	default:
		c.report(c.dir.clearRun())
		return
	}
	c.report(c.dir.remove())
	n.addresses.release(c.uid, c.addr)
	n.mu.Lock()
	delete(n.containers, c.uid)
	n.mu.Unlock()
	c.log.Info("process gone", "addr", c.addr.String())
	n.queue.Add(c.pod)
}

// report logs the error of a clean-up.
func (c *container) report(err error) {
	if err != nil {
		c.log.Error("left something behind", "err", err)
	}
}
