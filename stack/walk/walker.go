package walk

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/tools/clientcmd"

	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/api/v1alpha1"
	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/stack/supervise"
)

const (
	pollInterval = 50 * time.Millisecond // the time between two polls of a condition
	patience     = 60 * time.Second      // the timeout of conditions that have no bound of their own
)

// walker has the clients, and the state that one step leaves for the next.
type walker struct {
	stack   Stack
	out     io.Writer
	api     *discoveryAPI
	objects dynamic.Interface // polls the API server: a kubectl per poll would slow down the stack
	pids    map[int]string    // the recorded proxy processes; none may survive the walk
}

func newWalker(stack Stack, out io.Writer) (*walker, error) {
	config, err := clientcmd.BuildConfigFromFlags("", stack.Kubeconfig)
	if err != nil {
		return nil, fmt.Errorf("read the kubeconfig: %w", err)
	}
	objects, err := dynamic.NewForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("create a client: %w", err)
	}
	api, err := newDiscoveryAPI(stack)
	if err != nil {
		return nil, err
	}
	return &walker{stack: stack, out: out, api: api, objects: objects, pids: map[int]string{}}, nil
}

func (w *walker) printf(format string, args ...any) { fmt.Fprintf(w.out, format, args...) }

// say prints one observation.
func (w *walker) say(format string, args ...any) { w.printf("   "+format+"\n", args...) }

// await polls until check returns nil, and returns how long that took. After limit it times out with check's last error, which
// names what was missing.
func await(ctx context.Context, limit time.Duration, check func(context.Context) error) (time.Duration, error) {
	start := time.Now()
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	err := supervise.Until(ctx, pollInterval, nil, check)
	if err != nil {
		err = fmt.Errorf("not within %s: %w", limit, err)
	}
	return time.Since(start), err
}

// get reads an object into into.
func (w *walker) get(ctx context.Context, resource schema.GroupVersionResource, name string, into runtime.Object) error {
	found, err := w.objects.Resource(resource).Namespace(w.stack.Namespace).Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return fmt.Errorf("get %s %s: %w", resource.Resource, name, err)
	}
	return v1alpha1.FromUnstructured(found.Object, into)
}

func (w *walker) proxy(ctx context.Context, name string) (*v1alpha1.Proxy, error) {
	p := &v1alpha1.Proxy{}
	return p, w.get(ctx, v1alpha1.ProxyResource(), name, p)
}

// pod returns the Pod of the proxy.
func (w *walker) pod(ctx context.Context, p *v1alpha1.Proxy) (*corev1.Pod, error) {
	pod := &corev1.Pod{}
	return pod, w.get(ctx, corev1.SchemeGroupVersion.WithResource("pods"), v1alpha1.InstanceName(p.UID), pod)
}

// pid returns the process of the Pod's container, and records it.
func (w *walker) pid(ctx context.Context, p *v1alpha1.Proxy) (int, error) {
	pod, err := w.pod(ctx, p)
	if err != nil {
		return 0, err
	}
	if len(pod.Status.ContainerStatuses) == 0 {
		return 0, fmt.Errorf("pod %s has no container status yet", pod.Name)
	}
	status := pod.Status.ContainerStatuses[0]
	pid, err := w.processOf(ctx, status.ContainerID)
	if err != nil {
		return 0, fmt.Errorf("pod %s: %w", pod.Name, err)
	}
	if status.State.Running == nil {
		return 0, fmt.Errorf("pod %s: process %d does not run", pod.Name, pid)
	}
	w.pids[pid] = p.Name
	return pid, nil
}

func (w *walker) processOf(ctx context.Context, containerID string) (int, error) {
	if w.stack.ContainerPID != nil {
		return w.stack.ContainerPID(ctx, containerID)
	}
	var pid int
	if _, err := fmt.Sscanf(containerID, "process://%d", &pid); err != nil || pid <= 1 {
		return 0, fmt.Errorf("container id %q names no process", containerID)
	}
	return pid, nil
}

// ready returns the Proxy when its phase is Ready for the current spec.
func (w *walker) ready(ctx context.Context, name string) (*v1alpha1.Proxy, error) {
	return w.inPhase(ctx, name, v1alpha1.PhaseReady)
}

func (w *walker) inPhase(ctx context.Context, name string, phase v1alpha1.Phase) (*v1alpha1.Proxy, error) {
	p, err := w.proxy(ctx, name)
	if err != nil {
		return nil, err
	}
	if p.Status.Phase != phase || p.Status.ObservedGeneration != p.Generation {
		return nil, fmt.Errorf("proxy %s is %s (generation %d, status for %d), want %s", name, cmp.Or(string(p.Status.Phase), "without a phase"), p.Generation, p.Status.ObservedGeneration, phase)
	}
	return p, nil
}

// awaitReady waits until all are Ready and leasable.
func (w *walker) awaitReady(ctx context.Context, names ...string) (time.Duration, error) {
	return await(ctx, patience, func(ctx context.Context) error {
		var errs []error
		for _, name := range names {
			_, err := w.ready(ctx, name)
			errs = append(errs, err, w.offered(ctx, name))
		}
		return errors.Join(errs...)
	})
}

// offered returns an error unless discovery would lease the proxy now.
func (w *walker) offered(ctx context.Context, name string) error {
	listed, err := w.api.find(ctx, name)
	if err != nil {
		return err
	}
	if !listed.Leasable {
		return fmt.Errorf("discovery does not offer %s: %s", name, listed.NotLeasableMessage)
	}
	return nil
}
