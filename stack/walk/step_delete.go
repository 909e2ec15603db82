package walk

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"syscall"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/metacontroller"
)

// deleteAll is the last step.
func (w *walker) deleteAll(ctx context.Context) error {
	names := []string{berlin, paris, elsewhere}
	if w.stack.CloudProvider != "" {
		names = append(names, madrid)
	}
	for _, name := range names {
		p, err := w.proxy(ctx, name)
		if err != nil {
			return err
		}
		if len(p.Finalizers) != 1 || p.Finalizers[0] != metacontroller.Finalizer {
			return fmt.Errorf("proxy %s has the finalizers %v, want %s", name, p.Finalizers, metacontroller.Finalizer)
		}
		if err := w.proxies().Delete(ctx, name, metav1.DeleteOptions{}); err != nil {
			return fmt.Errorf("delete proxy %s: %w", name, err)
		}
		w.say("deleted proxy %s", name)
	}
	took, err := await(ctx, patience, w.nothingLeft)
	if err != nil {
		return err
	}
	w.say("no Proxy, ProxyProbe, Pod, VM, proxy process or folder is left after %s", rounded(took))
	return nil
}

// nothingLeft names everything that is.
func (w *walker) nothingLeft(ctx context.Context) error {
	return errors.Join(w.noObjects(ctx), w.noProcesses(), w.noFolders(), w.noMachines(ctx), w.nothingListed(ctx))
}

// noMachines asks the cloud itself, and not the adapter, for VMs that nobody
// owns.
func (w *walker) noMachines(ctx context.Context) error {
	if w.stack.CloudProvider == "" {
		return nil
	}
	left, err := w.machines(ctx)
	if err != nil {
		return err
	}
	var errs []error
	for _, m := range left {
		errs = append(errs, fmt.Errorf("VM %s (id %s) in zone %s is left", m.Name, m.ID, m.Zone))
	}
	return errors.Join(errs...)
}

func (w *walker) noObjects(ctx context.Context) error {
	var errs []error
	proxies, err := w.proxies().List(ctx, metav1.ListOptions{})
	if err != nil {
		return fmt.Errorf("list proxies: %w", err)
	}
	for _, p := range proxies.Items {
		errs = append(errs, fmt.Errorf("proxy %s is left", p.GetName()))
	}
	probes, err := w.probes().List(ctx, metav1.ListOptions{})
	if err != nil {
		return fmt.Errorf("list proxyprobes: %w", err)
	}
	for _, p := range probes.Items {
		errs = append(errs, fmt.Errorf("proxyprobe %s is left", p.GetName()))
	}
	pods, err := w.cluster.CoreV1().Pods(w.stack.Namespace).List(ctx, metav1.ListOptions{})
	if err != nil {
		return fmt.Errorf("list pods: %w", err)
	}
	for _, p := range pods.Items {
		errs = append(errs, fmt.Errorf("pod %s is left", p.Name))
	}
	return errors.Join(errs...)
}

func (w *walker) noProcesses() error {
	var errs []error
	for pid, name := range w.pids {
		if err := syscall.Kill(pid, 0); !errors.Is(err, syscall.ESRCH) {
			errs = append(errs, fmt.Errorf("process %d of proxy %s is left", pid, name))
		}
	}
	return errors.Join(errs...)
}

func (w *walker) noFolders() error {
	if w.stack.PodRoot == "" {
		return nil
	}
	left, err := filepath.Glob(filepath.Join(w.stack.PodRoot, "*"))
	if err != nil {
		return fmt.Errorf("look into %s: %w", w.stack.PodRoot, err)
	}
	var errs []error
	for _, path := range left {
		if info, err := os.Stat(path); err == nil && info.IsDir() {
			errs = append(errs, fmt.Errorf("folder %s is left", path))
		}
	}
	return errors.Join(errs...)
}

func (w *walker) nothingListed(ctx context.Context) error {
	listed, err := w.api.list(ctx)
	if err != nil {
		return err
	}
	if len(listed) > 0 {
		return fmt.Errorf("discovery still lists %d proxies", len(listed))
	}
	return nil
}
