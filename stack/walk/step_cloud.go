package walk

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"

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
	p := w.managed(madrid)
	p.Spec.Provider = w.stack.CloudProvider
	p.Spec.Placement = &v1alpha1.Placement{Zone: zone, MachineType: "e2-micro", Image: "projects/demo/global/images/proxy"}
	return p
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
	stop := w.countVMs(ctx, before)
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
	looks, countErr := stop()
	if err := cmp.Or(err, countErr); err != nil {
		return err
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

// machinesOf lists the VMs of the proxy.
func (w *walker) machinesOf(ctx context.Context, p *v1alpha1.Proxy) ([]machine, error) {
	all, err := w.machines(ctx)
	return slices.DeleteFunc(all, func(m machine) bool { return m.Name != v1alpha1.InstanceName(p.UID) }), err
}

// machineOf returns the one VM of the proxy.
func (w *walker) machineOf(ctx context.Context, p *v1alpha1.Proxy) (machine, error) {
	own, err := w.machinesOf(ctx, p)
	if err != nil {
		return machine{}, err
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

// countVMs counts the VMs of the proxy over and over, in the cloud itself, until stop is called. That
// returns the number of counts, and an error when a count failed or found two VMs at once.
func (w *walker) countVMs(ctx context.Context, p *v1alpha1.Proxy) (stop func() (looks int, err error)) {
	looks, most := 0, 0
	var errs error
	halt := repeat(ctx, func(ctx context.Context) {
		own, err := w.machinesOf(ctx, p)
		if ctx.Err() != nil {
			return
		}
		looks++
		most = max(most, len(own))
		errs = errors.Join(errs, err)
	})
	return func() (int, error) {
		halt()
		if most > 1 {
			errs = errors.Join(errs, fmt.Errorf("a proxy had %d VMs at once", most))
		}
		return looks, errs
	}
}
