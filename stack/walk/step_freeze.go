package walk

import (
	"context"
	"errors"
	"fmt"
	"syscall"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"

	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/api/v1alpha1"
	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/client"
)

// freezeAndKill is step 5.
func (w *walker) freezeAndKill(ctx context.Context) error {
	p, err := w.ready(ctx, paris)
	if err != nil {
		return err
	}
	pid, err := w.pid(ctx, p)
	if err != nil {
		return err
	}
	if err := w.freeze(ctx, pid); err != nil {
		return errors.Join(err, syscall.Kill(pid, syscall.SIGCONT))
	}
	if err := w.thaw(ctx, pid); err != nil {
		return err
	}
	if err := w.kill(ctx, p, pid); err != nil {
		return err
	}
	return w.events(ctx, paris, "Created", "Healthy", "Unhealthy")
}

func (w *walker) freeze(ctx context.Context, pid int) error {
	if err := syscall.Kill(pid, syscall.SIGSTOP); err != nil {
		return fmt.Errorf("freeze process %d: %w", pid, err)
	}
	var p *v1alpha1.Proxy
	took, err := await(ctx, detection, func(ctx context.Context) error {
		var err error
		p, err = w.inPhase(ctx, paris, v1alpha1.PhaseUnhealthy)
		return err
	})
	if err != nil {
		return err
	}
	healthy := meta.FindStatusCondition(p.Status.Conditions, v1alpha1.ConditionHealthy)
	w.say("SIGSTOP to process %d: %s is Unhealthy after %s (at most %s): %s: %s", pid, paris, rounded(took), detection, healthy.Reason, healthy.Message)
	if err := w.print(ctx, "px"); err != nil {
		return err
	}
	var refused *client.APIError
	_, err = await(ctx, propagation, func(ctx context.Context) error {
		var err error
		refused, err = w.api.refused(ctx, want(map[string]string{"city": paris}, ""))
		return err
	})
	if err != nil {
		return err
	}
	w.say("not leased: %s", refused.Message)
	return nil
}

func (w *walker) thaw(ctx context.Context, pid int) error {
	if err := syscall.Kill(pid, syscall.SIGCONT); err != nil {
		return fmt.Errorf("thaw process %d: %w", pid, err)
	}
	took, err := w.awaitReady(ctx, paris)
	if err != nil {
		return err
	}
	w.say("SIGCONT: Ready again after %s", rounded(took))
	return nil
}

func (w *walker) kill(ctx context.Context, p *v1alpha1.Proxy, pid int) error {
	if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
		return fmt.Errorf("kill process %d: %w", pid, err)
	}
	start := time.Now()
	var next int
	_, err := await(ctx, patience, func(ctx context.Context) error {
		var err error
		if next, err = w.pid(ctx, p); err != nil {
			return err
		}
		if next == pid {
			return fmt.Errorf("process %d was killed and not restarted", pid)
		}
		_, err = w.ready(ctx, paris)
		return errors.Join(err, w.offered(ctx, paris), w.crawlable(ctx, paris))
	})
	if err != nil {
		return err
	}
	w.say("SIGKILL: restarted as process %d, Ready and crawled through after %s", next, rounded(time.Since(start)))
	return nil
}

// crawlable returns an error when a crawl through the proxy of that city fails.
func (w *walker) crawlable(ctx context.Context, name string) error {
	l, err := w.api.granted(ctx, want(map[string]string{"city": name}, ""))
	if err != nil {
		return err
	}
	_, err = w.crawl(ctx, l)
	return errors.Join(err, l.Release(ctx))
}
