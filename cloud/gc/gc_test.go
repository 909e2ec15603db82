package gc

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/rest"

	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/cloud/gcestandin"
	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/cloud/gcp"
	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/cloud/provider"
)

const (
	zoneB = "europe-west1-b"
	zoneU = "us-central1-a"
)

// Row C9: an instance whose UID no Proxy has is not an orphan at once.
func TestC9OrphanIsDeletedByTheSecondSweepAndLogged(t *testing.T) {
	b := newHarness(t, nil)
	id := b.vm(zoneB, "dead", nil)
	b.vm(zoneB, "alive", nil)
	b.alive["alive"] = true
	b.sweep()
	assert.Len(t, b.left(), 2, "seen once")
	b.sweep()
	assert.Equal(t, []string{"alive"}, b.left())
	assert.Equal(t, []string{"dead"}, b.forgotten)
	assert.Equal(t, []string{"done 1 0", "done 1 1"}, b.results)
	for _, want := range []string{`"level":"WARN","msg":"deleting orphan`, `"provider":"gcp-eu"`, `"providerID":"zones/europe-west1-b/instances/proxy-dead"`, `"instanceID":"` + id + `"`, `"uid":"dead"`} {
		assert.Contains(t, b.log.String(), want)
	}
}

// Row C3: a new instance has no Proxy yet.
func TestC3InstanceYoungerThanMinAgeIsKept(t *testing.T) {
	b := newHarness(t, nil)
	b.sweep()
	b.vm(zoneB, "new", nil)
	for range 9 {
		b.clock.Step(time.Minute)
		b.Sweep(t.Context())
	}
	assert.Len(t, b.left(), 1)
	assert.Equal(t, "done 0 0", b.results[len(b.results)-1], "not even suspected")
	b.sweep()
	assert.Len(t, b.left(), 1, "suspected for the first time")
	b.sweep()
	assert.Empty(t, b.left())
}

// Row C3: the second sweep finds the Proxy that the first one missed.
func TestC3SuspectWithAProxyIsKept(t *testing.T) {
	b := newHarness(t, nil)
	b.vm(zoneB, "a", nil)
	b.sweep()
	b.alive["a"] = true
	b.sweep()
	b.alive = map[string]bool{}
	b.sweep()
	assert.Len(t, b.left(), 1, "two sweeps in a row")
	b.sweep()
	assert.Empty(t, b.left())
}

// Row C4: an API server that returns no Proxies, or fails, must not cause the deletion
// of a fleet.
func TestC4EmptyProxyListDeletesNothing(t *testing.T) {
	b := newHarness(t, nil)
	for i := range 50 {
		b.vm(zoneB, fmt.Sprintf("p%d", i), nil)
	}
	for range 3 {
		b.sweep()
	}
	assert.Len(t, b.left(), 50)
	assert.Equal(t, "refused 50 0", b.results[2])
	assert.Contains(t, b.log.String(), `"level":"ERROR","msg":"orphan sweep refused`)

	b.aliveErr = errors.New("connection refused")
	b.sweep()
	assert.Equal(t, "failed 0 0", b.results[3])
	assert.Len(t, b.left(), 50)
}

func TestC4BreakerIsThreeOrAFifth(t *testing.T) {
	for n, most := range map[int]int{0: 3, 1: 3, 15: 3, 19: 3, 20: 4, 50: 10, 1000: 200} {
		assert.Equal(t, most, breaker(n), n)
	}
	b := newHarness(t, nil)
	for i := range 20 {
		uid := fmt.Sprintf("p%d", i)
		b.vm(zoneB, uid, nil)
		b.alive[uid] = i >= 5
	}
	b.sweep()
	b.sweep()
	assert.Len(t, b.left(), 20, "five of twenty are too many")
	b.alive["p0"] = true
	b.sweep()
	assert.Len(t, b.left(), 16, "four are not")
}

// Rows C8 and C10: other installations share the project, and so do VMs without our
// labels.
func TestC8OnlyLabelledOrphansAreDeleted(t *testing.T) {
	b := newHarness(t, nil)
	b.vm(zoneB, "other", func(l map[string]string) { l[gcp.LabelInstallation] = "other" })
	b.vm(zoneB, "none", func(l map[string]string) { delete(l, gcp.LabelInstallation) })
	b.vm(zoneB, "nouid", func(l map[string]string) { delete(l, gcp.LabelUID) })
	b.sweep()
	b.sweep()
	b.sweep()
	assert.Len(t, b.left(), 3)
	assert.Equal(t, "done 0 0", b.results[2])
}

// Even if a provider lists too much, labels decide.
func TestC8OrphansIsPureAndChecksEveryLabel(t *testing.T) {
	old := time.Unix(1000, 0)
	ok := provider.Instance{ID: "1", UID: "u", Installation: "inst", CreatedAt: old}
	change := func(f func(*provider.Instance)) []provider.Instance {
		vm := ok
		f(&vm)
		return []provider.Instance{vm}
	}
	before := old.Add(time.Second)
	assert.Len(t, orphans([]provider.Instance{ok}, nil, "inst", before), 1)
	for name, vms := range map[string][]provider.Instance{
		"installation": change(func(vm *provider.Instance) { vm.Installation = "other" }),
		"no uid":       change(func(vm *provider.Instance) { vm.UID = "" }),
		"no id":        change(func(vm *provider.Instance) { vm.ID = "" }),
		"young":        change(func(vm *provider.Instance) { vm.CreatedAt = before }),
		"no age":       change(func(vm *provider.Instance) { vm.CreatedAt = time.Time{} }),
	} {
		assert.Empty(t, orphans(vms, nil, "inst", before), name)
	}
	assert.Empty(t, orphans([]provider.Instance{ok}, map[string]bool{"u": true}, "inst", before))
}

// Row D12: a list with gaps is not used, not even for the instances that it contains.
func TestD12PartialListSkipsTheSweep(t *testing.T) {
	for _, mode := range []gcestandin.ZoneMode{gcestandin.ZoneUnreachable, gcestandin.ZoneUnreachableLate, gcestandin.ZoneSilent} {
		b := newHarness(t, nil)
		b.vm(zoneB, "dead", nil)
		b.sweep()
		b.gce.SetZone(zoneU, mode)
		b.sweep()
		assert.Len(t, b.left(), 1)
		assert.Equal(t, "partial 0 0", b.results[1])
		b.gce.SetZone(zoneU, gcestandin.ZoneUp)
		b.sweep()
		assert.Empty(t, b.left(), "the skipped sweep did not clear the suspect")
	}
}

func TestFailedListSkipsTheSweep(t *testing.T) {
	b := newHarness(t, nil)
	b.vm(zoneB, "dead", nil)
	b.sweep()
	b.gce.AddFault(gcestandin.Fault{Op: "list", Count: 1, Status: 500})
	b.sweep()
	assert.Equal(t, "failed 0 0", b.results[1])
	assert.Len(t, b.left(), 1)
}

func TestDryRunLogsOrphansAndKeepsThem(t *testing.T) {
	b := newHarness(t, func(c *Config) { c.DryRun = true })
	b.vm(zoneB, "dead", nil)
	b.sweep()
	b.sweep()
	b.sweep()
	assert.Len(t, b.left(), 1)
	assert.Empty(t, b.forgotten)
	assert.Contains(t, b.log.String(), "would be deleted")
	assert.Equal(t, "done 1 0", b.results[2])
}

func TestInstanceChangedSinceTheListIsKept(t *testing.T) {
	tests := map[string]func(*harness){
		"another UID":   func(b *harness) { _ = b.gce.Relabel(zoneB, "proxy-dead", map[string]string{gcp.LabelUID: "x"}) },
		"being deleted": func(b *harness) { _ = b.gce.SetStatus(zoneB, "proxy-dead", "STOPPING") },
		"gone":          func(b *harness) { _ = b.gce.Remove(zoneB, "proxy-dead") },
		"unreadable":    func(b *harness) { b.gce.AddFault(gcestandin.Fault{Op: "get", Status: 403}) },
	}
	for name, happens := range tests {
		t.Run(name, func(t *testing.T) {
			b := newHarness(t, nil)
			b.vm(zoneB, "dead", nil)
			b.sweep()
			// Between the list and the read before the delete, while Proxies are
			// listed.
			b.cfg.Proxies = uidsFunc(func() (map[string]bool, error) { happens(b); return nil, nil })
			b.sweep()
			assert.Equal(t, "done 1 0", b.results[1])
			assert.Empty(t, b.forgotten)
			for _, c := range b.gce.Calls() {
				assert.NotEqual(t, "delete", c.Op)
			}
		})
	}
}

type uidsFunc func() (map[string]bool, error)

func (f uidsFunc) UIDs(context.Context) (map[string]bool, error) { return f() }

// A Proxy that is made during the sweep is found: instances are listed first.
func TestProxiesAreListedAfterInstances(t *testing.T) {
	b := newHarness(t, nil)
	listed := false
	b.cfg.Proxies = uidsFunc(func() (map[string]bool, error) {
		listed = len(b.gce.Calls()) == 1
		return nil, nil
	})
	b.sweep()
	assert.True(t, listed)
}

func TestRefusedDeleteIsRetriedByTheNextSweep(t *testing.T) {
	b := newHarness(t, nil)
	b.vm(zoneB, "dead", nil)
	require.NoError(t, b.gce.Protect(zoneB, "proxy-dead", true))
	b.sweep()
	b.sweep()
	assert.Equal(t, "done 1 0", b.results[1])
	require.NoError(t, b.gce.Protect(zoneB, "proxy-dead", false))
	b.sweep()
	assert.Empty(t, b.left())
}

func TestAccountsAreSweptOnce(t *testing.T) {
	b := newHarness(t, nil)
	b.cfg.Providers = append(b.cfg.Providers, b.cfg.Providers[0])
	b.sweep()
	assert.Len(t, b.gce.Calls(), 1)
}

func TestRunSweepsEachIntervalAndNotBefore(t *testing.T) {
	b := newHarness(t, nil)
	ctx, cancel := context.WithCancel(t.Context())
	swept := make(chan struct{}, 10)
	b.cfg.Proxies = uidsFunc(func() (map[string]bool, error) { swept <- struct{}{}; return nil, nil })
	done := make(chan struct{})
	go func() { defer close(done); b.Run(ctx) }()
	require.Eventually(t, b.clock.HasWaiters, 5*time.Second, time.Millisecond)
	b.clock.Step(9 * time.Minute)
	assert.Empty(t, swept)
	b.clock.Step(time.Minute)
	<-swept
	cancel()
	<-done
}

func TestThrottleEndsWithItsContext(t *testing.T) {
	b := newHarness(t, func(c *Config) { c.Bucket = provider.NewBucket(0.001, 1) })
	assert.True(t, b.throttle(t.Context()))
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan bool)
	go func() { done <- b.throttle(ctx) }()
	require.Eventually(t, b.clock.HasWaiters, 5*time.Second, time.Millisecond)
	cancel()
	assert.False(t, <-done)
}

// apiServer serves lists of Proxies with n pages of one each, and the failAt-th
// request with 410, as for an expired continue token.
type apiServer struct {
	n, failAt int
	paths     []string
	queries   []url.Values
}

func (s *apiServer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.paths = append(s.paths, r.URL.Path)
	s.queries = append(s.queries, r.URL.Query())
	page := len(s.paths)
	w.Header().Set("Content-Type", "application/json")
	if page == s.failAt {
		w.WriteHeader(http.StatusGone)
		fmt.Fprint(w, `{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"Expired","message":"the continue token expired","code":410}`)
		return
	}
	list := metav1.PartialObjectMetadataList{TypeMeta: metav1.TypeMeta{Kind: "PartialObjectMetadataList", APIVersion: "meta.k8s.io/v1"}}
	if page < s.n {
		list.Continue = fmt.Sprint("after-", page)
	}
	list.Items = []metav1.PartialObjectMetadata{{ObjectMeta: metav1.ObjectMeta{UID: types.UID(fmt.Sprint(page)), DeletionTimestamp: &metav1.Time{}}}}
	_ = json.NewEncoder(w).Encode(list)
}

func (s *apiServer) start(t *testing.T, namespace string) APIServer {
	t.Helper()
	srv := httptest.NewServer(s)
	t.Cleanup(srv.Close)
	client, err := metadata.NewForConfig(&rest.Config{Host: srv.URL})
	require.NoError(t, err)
	return APIServer{Client: client, Namespace: namespace}
}

func TestUIDsReadsAllPages(t *testing.T) {
	s := &apiServer{n: 3}
	got, err := s.start(t, "").UIDs(t.Context())
	require.NoError(t, err)
	assert.Equal(t, map[string]bool{"1": true, "2": true, "3": true}, got, "those that are being deleted count")
	assert.Equal(t, "/apis/crawl.example.com/v1alpha1/proxies", s.paths[0])
	assert.Equal(t, url.Values{"limit": {"500"}}, s.queries[0], "no resource version: from the store, not from a cache")
	assert.Equal(t, "after-2", s.queries[2].Get("continue"))
}

func TestUIDsOfOneNamespace(t *testing.T) {
	s := &apiServer{n: 1}
	_, err := s.start(t, "crawl").UIDs(t.Context())
	require.NoError(t, err)
	assert.Equal(t, "/apis/crawl.example.com/v1alpha1/namespaces/crawl/proxies", s.paths[0])
}

func TestUIDsFailsWithAnExpiredPage(t *testing.T) {
	s := &apiServer{n: 3, failAt: 3}
	got, err := s.start(t, "").UIDs(t.Context())
	require.ErrorContains(t, err, "list Proxies: the continue token expired")
	assert.Nil(t, got)
}
