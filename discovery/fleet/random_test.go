package fleet

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/api/v1alpha1"
)

// world plays random events of both watches, with a few names that several Proxies and
// ProxyProbes have in turn.
type world struct {
	*stores
	rnd     *rand.Rand
	proxies map[string]*v1alpha1.Proxy
	probes  map[string]*v1alpha1.ProxyProbe
}

func pick[T any](w *world, from ...T) T { return from[w.rnd.IntN(len(from))] }

func (w *world) proxy(name string) *v1alpha1.Proxy {
	p := readyProxy()
	p.Name, p.UID = name, types.UID(pick(w, "one", "another"))
	p.Status.Phase = pick(w, v1alpha1.PhaseReady, v1alpha1.PhaseReady, v1alpha1.PhaseUnhealthy)
	p.Status.LastHealthCheckTime = w.time()
	return p
}

func (w *world) time() *metav1.Time {
	return ptr.To(metav1.NewTime(now.Add(time.Duration(w.rnd.IntN(3)) * time.Second)))
}

// event plays one: an object comes, changes or goes, or a list does.
func (w *world) event() {
	name := pick(w, "a", "b", "c", "d")
	switch w.rnd.IntN(6) {
	case 0, 1:
		w.proxies[name] = w.proxy(name)
		require.NoError(w, w.stores.proxies.Add(proxyObject(w.T, w.proxies[name])))
	case 2, 3:
		w.probes[name] = probeOf(w.proxy(name), pick(w, v1alpha1.VerdictHealthy, v1alpha1.VerdictUnhealthy, v1alpha1.VerdictUnknown, "", "Odd"), pick(w, "", "DialFailed"))
		w.probes[name].Status.LastProbeTime = pick(w, nil, w.time())
		require.NoError(w, w.stores.probes.Update(probeObject(w.T, w.probes[name])))
	case 4:
		p, q := w.proxy(name), probeOf(w.proxy(name), "", "")
		if w.rnd.IntN(2) == 0 {
			delete(w.proxies, name)
			require.NoError(w, w.stores.proxies.Delete(proxyObject(w.T, p)))
		} else {
			delete(w.probes, name)
			require.NoError(w, w.stores.probes.Delete(probeObject(w.T, q)))
		}
	case 5:
		w.lists()
	}
}

func (w *world) lists() {
	var proxies, probes []any
	for _, p := range w.proxies {
		proxies = append(proxies, proxyObject(w.T, p))
	}
	for _, p := range w.probes {
		probes = append(probes, probeObject(w.T, p))
	}
	require.NoError(w, w.stores.proxies.Replace(proxies, ""))
	require.NoError(w, w.stores.probes.Replace(probes, ""))
}

// In every order of events, a proxy depends on the last state of its object and its
// ProxyProbe alone, and no verdict outlives its object.
func TestProxyDependsOnTheLastObjectsAlone(t *testing.T) {
	for seed := range uint64(20) {
		w := &world{
			stores: newStores(t), rnd: rand.New(rand.NewPCG(seed, 0)),
			proxies: map[string]*v1alpha1.Proxy{}, probes: map[string]*v1alpha1.ProxyProbe{},
		}
		for range 200 {
			w.event()
			if w.rnd.IntN(2) == 0 {
				continue // several events between two readers
			}
			got := w.stores.proxies.all()
			require.Len(t, got, len(w.proxies), "seed %d", seed)
			for _, p := range got {
				want := FromAPI(w.proxies[p.Name])
				if probe := w.probes[p.Name]; probe != nil {
					want = want.withVerdict(verdictAgainst(probe))
				}
				tell := func(p *Proxy) string { return fmt.Sprint(p.Instance, p.Phase, p.Reason, p.Healthy, p.VerdictAhead) }
				require.Equal(t, tell(want), tell(p), "seed %d", seed)
			}
			require.LessOrEqual(t, len(w.stores.proxies.verdicts), len(w.probes), "seed %d", seed)
		}
	}
}
