package webhooks

import (
	"context"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/types"

	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/api/adapter"
	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/webhooks/proxytest"
)

// fleetAdapter is an adapter of many VMs, by their UIDs.
type fleetAdapter map[string]*fakeAdapter

func (f fleetAdapter) of(uid string) (*fakeAdapter, error) {
	if a := f[uid]; a != nil {
		return a, nil
	}
	return nil, fmt.Errorf("%w: no such uid: %s", adapter.ErrInvalid, uid)
}

func (f fleetAdapter) Put(ctx context.Context, provider, name string, req adapter.PutRequest) (adapter.Instance, error) {
	a, err := f.of(req.UID)
	if err != nil {
		return adapter.Instance{}, err
	}
	return a.Put(ctx, provider, name, req)
}

func (f fleetAdapter) Delete(ctx context.Context, provider, name, uid, providerID string) (adapter.Instance, error) {
	a, err := f.of(uid)
	if err != nil {
		return adapter.Instance{}, err
	}
	return a.Delete(ctx, provider, name, uid, providerID)
}

// readyFleetOf are that many Proxies with VMs, all Ready.
func readyFleetOf(t *testing.T, h *Hooks, size int, clouds fleetAdapter) []*world {
	t.Helper()
	fleet := make([]*world, size)
	for i := range fleet {
		p := proxytest.Cloud()
		p.UID, p.Name = types.UID(fmt.Sprintf("vm-uid-%d", i)), fmt.Sprintf("vm-%d", i)
		clouds[string(p.UID)] = &fakeAdapter{}
		fleet[i] = &world{proxy: p, cloud: clouds[string(p.UID)]}
		fleet[i].until(t, h, "Ready", fleet[i].leasable)
	}
	require.Len(t, clouds, size)
	return fleet
}
