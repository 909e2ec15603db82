package walk

import (
	"context"
	"fmt"
	"net/http"
	"sync"
	"time"

	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/api/v1alpha1"
)

// machine is a VM in the cloud.
type machine struct {
	Zone   string `json:"zone"`
	Name   string `json:"name"`
	ID     string `json:"id"`
	Status string `json:"status"`
	IP     string `json:"ip"`
}

// machines lists the VMs of the cloud.
func (w *walker) machines(ctx context.Context) ([]machine, error) {
	var out []machine
	return out, call(ctx, http.MethodGet, w.stack.CloudVMsURL, "", http.StatusOK, &out)
}

// machineOf returns the one VM of the proxy.
func (w *walker) machineOf(ctx context.Context, p *v1alpha1.Proxy) (machine, error) {
	all, err := w.machines(ctx)
	if err != nil {
		return machine{}, err
	}
	var own []machine
	for _, m := range all {
		if m.Name == v1alpha1.InstanceName(p.UID) {
			own = append(own, m)
		}
	}
	if len(own) != 1 {
		return machine{}, fmt.Errorf("the cloud holds %d VMs of proxy %s, want 1", len(own), p.Name)
	}
	m := own[0]
	if m.ID != p.Status.InstanceID || m.IP != p.Status.IP || "zones/"+m.Zone+"/instances/"+m.Name != p.Status.ProviderID {
		return machine{}, fmt.Errorf("the cloud's VM is %+v, and the status of %s has %s at %s, %s", m, p.Name, p.Status.InstanceID, p.Status.IP, p.Status.ProviderID)
	}
	return m, nil
}

// census counts a proxy's VMs over and over, in the cloud itself.
type census struct {
	cancel context.CancelFunc
	done   sync.WaitGroup

	mu    sync.Mutex
	looks int
	most  int
	err   error
}

// startCensus counts the VMs of the proxy until stop is called.
func (w *walker) startCensus(ctx context.Context, p *v1alpha1.Proxy) *census {
	ctx, cancel := context.WithCancel(ctx)
	c := &census{cancel: cancel}
	c.done.Go(func() {
		tick := time.NewTicker(crawlerInterval)
		defer tick.Stop()
		for ctx.Err() == nil {
			all, err := w.machines(ctx)
			c.note(ctx, all, v1alpha1.InstanceName(p.UID), err)
			select {
			case <-ctx.Done():
			case <-tick.C:
			}
		}
	})
	return c
}

func (c *census) note(ctx context.Context, all []machine, name string, err error) {
	if ctx.Err() != nil {
		return
	}
	n := 0
	for _, m := range all {
		if m.Name == name {
			n++
		}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.looks++
	c.most = max(c.most, n)
	if err != nil {
		c.err = err
	}
}

// stop ends the census and returns the number of counts. It fails when a count failed or found two VMs at once.
func (c *census) stop() (looks int, err error) {
	c.cancel()
	c.done.Wait()
	switch {
	case c.err != nil:
		return c.looks, c.err
	case c.most > 1:
		return c.looks, fmt.Errorf("a proxy had %d VMs at once", c.most)
	}
	return c.looks, nil
}
