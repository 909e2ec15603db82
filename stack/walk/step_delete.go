package walk

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"

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
		if _, err := w.kubectl(ctx, nil, "delete", "px", name, "--wait=false"); err != nil {
			return err
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

// nothingLeft returns an error that lists everything that is left. kubectl, the slowest check, runs once the others pass.
func (w *walker) nothingLeft(ctx context.Context) error {
	if err := errors.Join(w.noProcesses(), w.noFolders(), w.noMachines(ctx), w.nothingListed(ctx)); err != nil {
		return err
	}
	return w.noObjects(ctx)
}

// noMachines lists the VMs in the cloud itself, not in the adapter, which would miss orphans.
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
	left, err := w.kubectl(ctx, nil, "get", "px,pxp,pods", "-o", "name")
	if err == nil && left != "" {
		err = fmt.Errorf("objects are left: %s", strings.Fields(left))
	}
	return err
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
