package engine

import (
	"fmt"
	"time"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/types"

	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/api/adapter"
	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/api/v1alpha1"
	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/cloud/gcestandin"
	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/cloud/gcp"
)

// px is a Proxy as the hook sees it.
type px struct {
	b   *bench
	req adapter.PutRequest
	// providerID is where its instance was last known to be, leaving that it
	// was deleted. Stories use them.
	providerID string
	leaving    bool
}

func (b *bench) proxy(n int) *px {
	uid := fmt.Sprintf("00000000-0000-4000-8000-%012d", n)
	return &px{b: b, req: adapter.PutRequest{
		UID: uid, Namespace: "crawl", Proxy: fmt.Sprintf("p%d", n), SpecHash: "v1-aa", Generation: 1, Port: 3128, UserData: "#cloud-config\n",
		Placement: v1alpha1.Placement{Zone: zoneB, MachineType: "e2-micro", Image: "squid-1"},
	}}
}

func (p *px) name() string { return v1alpha1.InstanceName(types.UID(p.req.UID)) }

func (p *px) tryPut() (adapter.Instance, error) { return p.b.engine.Put("gcp-eu", p.name(), p.req) }

func (p *px) put() adapter.Instance {
	p.b.t.Helper()
	got, err := p.tryPut()
	require.NoError(p.b.t, err)
	return got
}

func (p *px) tryDelete(providerID string) (adapter.Instance, error) {
	return p.b.engine.Delete("gcp-eu", p.name(), p.req.UID, providerID)
}

func (p *px) delete() adapter.Instance {
	p.b.t.Helper()
	got, err := p.tryDelete("")
	require.NoError(p.b.t, err)
	return got
}

// running puts until the instance runs and returns it.
func (p *px) running() adapter.Instance {
	p.b.t.Helper()
	var got adapter.Instance
	p.b.until(5*time.Minute, "Running", func() bool {
		var err error
		got, err = p.tryPut()
		return err == nil && got.State == adapter.StateRunning
	})
	return got
}

// absent deletes until the instance is confirmed gone, and checks that it is.
func (p *px) absent() {
	p.b.t.Helper()
	p.b.until(10*time.Minute, "Absent", func() bool {
		got, err := p.tryDelete("")
		return err == nil && got.State == adapter.StateAbsent
	})
	require.Empty(p.b.t, p.vms(), "reported Absent")
}

// vms are the VMs that carry the Proxy's UID.
func (p *px) vms() []gcestandin.VM {
	var out []gcestandin.VM
	for _, vm := range p.b.gce.VMs() {
		if vm.Labels[gcp.LabelUID] == p.req.UID {
			out = append(out, vm)
		}
	}
	return out
}
