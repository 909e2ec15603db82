package webhooks

import (
	"bytes"
	"context"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"

	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/api/adapter"
	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/api/v1alpha1"
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

// slowAdapter takes a while for each answer, and gives up when its caller does.
type slowAdapter struct {
	fakeAdapter
	takes time.Duration
}

func (s *slowAdapter) wait(ctx context.Context) error {
	select {
	case <-ctx.Done():
		return fmt.Errorf("%w: %w", adapter.ErrUnavailable, ctx.Err())
	case <-time.After(s.takes):
		return nil
	}
}

func (s *slowAdapter) Put(ctx context.Context, provider, name string, req adapter.PutRequest) (adapter.Instance, error) {
	if err := s.wait(ctx); err != nil {
		return adapter.Instance{}, err
	}
	return s.fakeAdapter.Put(ctx, provider, name, req)
}

func (s *slowAdapter) Delete(ctx context.Context, provider, name, uid, providerID string) (adapter.Instance, error) {
	if err := s.wait(ctx); err != nil {
		return adapter.Instance{}, err
	}
	return s.fakeAdapter.Delete(ctx, provider, name, uid, providerID)
}

// metacontrollerTimeout is that of the hooks in the CompositeController.
const metacontrollerTimeout = 10 * time.Second

// However long the adapter takes, a hook answers well before Metacontroller
// gives up, and an adapter that hangs costs that only once in a while.
func TestSlowAdapterDelaysHooksWithinBounds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		slow := &slowAdapter{takes: time.Hour}
		slow.vm = proxytest.RunningVM()
		o := testOptions()
		o.Adapter, o.Clock = slow, clock.RealClock{}
		h := New(o)
		serving := proxytest.ServedBy(proxytest.Cloud(), proxytest.RunningVM())
		call := func(finalizing bool) (took time.Duration) {
			start := time.Now()
			r := request{proxy: serving, finalizing: finalizing}
			hook := map[bool]string{false: "sync", true: "finalize"}[finalizing]
			a := v2Of(t, answerTo(t, h, hook, r.body(t)))
			require.False(t, *a.Finalized)
			if !finalizing {
				require.Equal(t, string(v1alpha1.PhaseProbing), a.phase(), "it serves on")
				require.Equal(t, "203.0.113.7", a.Status["ip"])
			}
			return time.Since(start)
		}
		require.Less(t, adapterTimeout, metacontrollerTimeout/4)
		for range 3 {
			for _, finalizing := range []bool{false, true} {
				assert.Equal(t, adapterTimeout, call(finalizing))
				for range 50 {
					assert.Zero(t, call(finalizing), "the others do not wait")
				}
				time.Sleep(adapterCooldown)
			}
		}
		assert.InDelta(t, 150, testutil.ToFloat64(h.metrics.adapter.WithLabelValues("put", "skipped")), 0)
		assert.InDelta(t, 3, testutil.ToFloat64(h.metrics.adapter.WithLabelValues("delete", "unavailable")), 0)

		slow.takes = time.Millisecond
		assert.Equal(t, time.Millisecond, call(false), "back again")

		// Two requests, each nearly as long as the timeout.
		slow.takes = adapterTimeout * 3 / 4
		serving.Spec.Port = 3129
		assert.Equal(t, adapterTimeout, timedCall(t, h, serving), "one bound for both")
	})
}

func timedCall(t *testing.T, h *Hooks, p *v1alpha1.Proxy) time.Duration {
	t.Helper()
	start := time.Now()
	a := v2Of(t, answerTo(t, h, "sync", request{proxy: p}.body(t)))
	require.Equal(t, v1alpha1.ReasonReplacing, a.reason())
	return time.Since(start)
}

// A caller that gives up does not make the adapter look hung.
func TestCanceledRequestStartsNoAdapterCooldown(t *testing.T) {
	h := hooksWith(&slowAdapter{takes: time.Hour})
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err := h.sync(ctx, bytes.NewReader(request{proxy: proxytest.Cloud()}.body(t)))
	require.NoError(t, err)
	assert.Zero(t, h.adapter.cooldown.Load())
}

// What is behind the socket may answer anything at all.
func TestMalformedAdapterRepliesKeepTheInstance(t *testing.T) {
	for name, handler := range map[string]http.HandlerFunc{
		"malformed":    func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, `{"state":"Running`) },
		"another type": func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, `[{"state":"Absent"}]`) },
		"null":         func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, `null`) },
		"empty":        func(http.ResponseWriter, *http.Request) {},
		"no content":   func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusNoContent) },
		"huge": func(w http.ResponseWriter, _ *http.Request) {
			fmt.Fprintf(w, `{"state":"Absent","failure":{"class":"Permanent","message":"%s"}}`, strings.Repeat("x", adapter.MaxAnswerBytes))
		},
		"broken off": func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Length", "1000")
			fmt.Fprint(w, `{"state":"Absent"}`)
		},
		"a web page":      func(w http.ResponseWriter, _ *http.Request) { http.Error(w, "<html>", http.StatusBadGateway) },
		"a redirect":      func(w http.ResponseWriter, r *http.Request) { http.Redirect(w, r, "/v1/instances", http.StatusFound) },
		"a panic":         func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) },
		"absent, and not": func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, `{"state":"Absent","instanceID":"7"}`) },
	} {
		t.Run(name, func(t *testing.T) {
			h := hooksWith(clientOf(t, handler))
			w := &world{proxy: proxytest.ServedBy(proxytest.Cloud(), proxytest.RunningVM()), probe: proxytest.Probe(proxytest.VMID, v1alpha1.VerdictHealthy)}
			before := *w.proxy.Status.DeepCopy()
			w.sync(t, h)
			assert.Equal(t, v1alpha1.PhaseReady, w.proxy.Status.Phase)
			assert.Equal(t, before.InstanceID, w.proxy.Status.InstanceID)
			assert.Equal(t, before.IP, w.proxy.Status.IP)
			w.finalizing = true
			for range 3 {
				w.sync(t, h)
			}
			assert.False(t, w.gone)

			fresh := &world{proxy: proxytest.Cloud()}
			fresh.sync(t, h)
			assert.Equal(t, v1alpha1.ReasonCloudAdapterUnavailable, fresh.provisioned(t).Reason)
		})
	}
}

// clientOf is a client of an adapter that answers so.
func clientOf(t *testing.T, handler http.HandlerFunc) *adapter.Client {
	t.Helper()
	socket := filepath.Join(t.TempDir(), "s")
	ln, err := net.Listen("unix", socket)
	require.NoError(t, err)
	srv := httptest.NewUnstartedServer(handler)
	srv.Listener = ln
	srv.Start()
	t.Cleanup(srv.Close)
	c := adapter.NewClient(socket, time.Minute)
	t.Cleanup(c.Close)
	return c
}
