package walk

import (
	"context"
	"errors"
	"fmt"
	"net/http"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/api/v1alpha1"
)

// madrid is the Proxy whose instance is a VM.
const madrid = "madrid"

// Zones of the VM, before and after the edit.
const (
	zone    = "europe-west1-b"
	newZone = "europe-west1-c"
)

func (w *walker) vmProxy() *v1alpha1.Proxy {
	return &v1alpha1.Proxy{
		ObjectMeta: metav1.ObjectMeta{Name: madrid},
		Spec: v1alpha1.ProxySpec{
			Mode:     v1alpha1.ModeManaged,
			Provider: w.stack.CloudProvider,
			Port:     3128,
			Placement: &v1alpha1.Placement{
				Zone: zone, MachineType: "e2-micro", Image: "projects/demo/global/images/proxy",
			},
			Attributes:  map[string]v1alpha1.AttributeValue{"geo": "eu", "city": madrid},
			HealthCheck: w.healthCheck(),
		},
	}
}

// runVM is the step that creates a VM.
func (w *walker) runVM(ctx context.Context) error {
	if err := w.apply(ctx, w.vmProxy()); err != nil {
		return err
	}
	w.say("applied proxy %s (provider %s, zone %s)", madrid, w.stack.CloudProvider, zone)
	took, err := w.awaitReady(ctx, madrid)
	if err != nil {
		return err
	}
	w.say("Ready after %s", rounded(took))
	if err := w.print(ctx, "px", "-o", "wide"); err != nil {
		return err
	}
	if err := w.showVM(ctx); err != nil {
		return err
	}
	return w.leaseOnce(ctx, map[string]string{"city": madrid}, w.targetHost())
}

// showVM prints the VM as the cloud lists it.
func (w *walker) showVM(ctx context.Context) error {
	p, err := w.ready(ctx, madrid)
	if err != nil {
		return err
	}
	m, err := w.machineOf(ctx, p)
	if err != nil {
		return err
	}
	w.say("the cloud holds VM %s in zone %s: id %s, %s, address %s", m.Name, m.Zone, m.ID, m.Status, m.IP)
	return nil
}

// replaceVM is the step that moves the VM to another zone.
func (w *walker) replaceVM(ctx context.Context) error {
	before, err := w.ready(ctx, madrid)
	if err != nil {
		return err
	}
	count := w.startCensus(ctx, before)
	_, err = w.replaceBy(ctx, edit{
		proxy: madrid,
		patch: fmt.Sprintf(`{"spec":{"placement":{"zone":%q}}}`, newZone),
		what:  "edited spec.placement.zone to " + newZone,
		applied: func(after *v1alpha1.Proxy) error {
			if want := "zones/" + newZone + "/instances/" + v1alpha1.InstanceName(after.UID); after.Status.ProviderID != want {
				return fmt.Errorf("%s is %s, want %s", madrid, after.Status.ProviderID, want)
			}
			return nil
		},
	})
	looks, countErr := count.stop()
	if err != nil {
		return err
	}
	if countErr != nil {
		return countErr
	}
	w.say("the cloud was asked %d times meanwhile: never two VMs at once", looks)
	if err := w.showVM(ctx); err != nil {
		return err
	}
	return w.leaseOnce(ctx, map[string]string{"city": madrid}, w.targetHost())
}

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
	err := call(ctx, http.MethodGet, w.stack.CloudVMsURL, "", http.StatusOK, &out)
	return out, err
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
	halt  func()
	looks int
	most  int
	err   error
}

// startCensus counts the VMs of the proxy until stop is called.
func (w *walker) startCensus(ctx context.Context, p *v1alpha1.Proxy) *census {
	c := &census{}
	c.halt = repeat(ctx, func(ctx context.Context) {
		all, err := w.machines(ctx)
		if ctx.Err() == nil {
			c.note(all, v1alpha1.InstanceName(p.UID), err)
		}
	})
	return c
}

func (c *census) note(all []machine, name string, err error) {
	n := 0
	for _, m := range all {
		if m.Name == name {
			n++
		}
	}
	c.looks++
	c.most = max(c.most, n)
	c.err = errors.Join(c.err, err)
}

// stop ends the census and returns the number of counts. It fails when a count failed or found two VMs at once.
func (c *census) stop() (looks int, err error) {
	c.halt()
	if c.most > 1 {
		c.err = errors.Join(c.err, fmt.Errorf("a proxy had %d VMs at once", c.most))
	}
	return c.looks, c.err
}
