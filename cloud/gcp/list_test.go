package gcp

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"cloud.google.com/go/compute/apiv1/computepb"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/utils/ptr"

	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/cloud/gcestandin"
)

func (r *rig) fill(t *testing.T, n int, zone, installation string) {
	t.Helper()
	for i := range n {
		req := testInsert()
		built, err := buildInsert(r.cfg, req)
		require.NoError(t, err)
		vm := built.GetInstanceResource()
		vm.Name = ptr.To(fmt.Sprintf("%s-%04d", installation, i))
		vm.Labels[LabelInstallation] = installation
		_, err = r.gce.Add(zone, vm)
		require.NoError(t, err)
	}
}

func TestListReadsAllPagesOfThisInstallation(t *testing.T) {
	r := newRig(t, Config{}, gcestandin.Options{})
	r.fill(t, 700, zoneB, "inst")
	r.fill(t, 350, "us-central1-a", "inst")
	r.fill(t, 10, zoneB, "other")
	listing, err := r.List(t.Context())
	require.NoError(t, err)
	assert.Len(t, listing.Instances, 1050)
	assert.True(t, listing.Complete())
	assert.Len(t, r.gce.Calls(), 3)
	for _, inst := range listing.Instances {
		require.Equal(t, "inst", inst.Installation)
	}
}

// Row D12 and section 3.8: an unreachable zone is a warning on any page, and only its
// instances are unknown.
func TestD12UnreachableZoneOnAnyPage(t *testing.T) {
	for _, mode := range []gcestandin.ZoneMode{gcestandin.ZoneUnreachable, gcestandin.ZoneUnreachableLate} {
		r := newRig(t, Config{}, gcestandin.Options{})
		r.fill(t, 600, zoneB, "inst")
		r.fill(t, 5, "us-central1-a", "inst")
		r.gce.SetZone("us-central1-a", mode)
		listing, err := r.List(t.Context())
		require.NoError(t, err)
		assert.Equal(t, []string{"us-central1-a"}, listing.Unreachable, mode)
		assert.False(t, listing.Partial, "the zone was named")
		assert.True(t, listing.Covers(zoneB))
		assert.True(t, listing.Covers("europe-west1-c"), "empty zones answered")
		assert.False(t, listing.Covers("us-central1-a"))
	}
}

func TestD12PartialListCoversAnsweredZonesOnly(t *testing.T) {
	r := newRig(t, Config{}, gcestandin.Options{})
	r.fill(t, 1, zoneB, "inst")
	r.gce.SetZone("us-central1-a", gcestandin.ZoneSilent)
	listing, err := r.List(t.Context())
	require.NoError(t, err)
	assert.True(t, listing.Partial)
	assert.True(t, listing.Covers(zoneB))
	assert.False(t, listing.Covers("us-central1-a"))
}

func TestWarnings(t *testing.T) {
	scope := func(code string) map[string]*computepb.InstancesScopedList {
		return map[string]*computepb.InstancesScopedList{"zones/a": {Warning: &computepb.Warning{Code: ptr.To(code)}}}
	}
	top := func(code string, scopes ...string) *computepb.Warning {
		w := &computepb.Warning{Code: ptr.To(code)}
		for _, s := range scopes {
			w.Data = append(w.Data, &computepb.Data{Key: ptr.To("scope"), Value: ptr.To(s)})
		}
		return w
	}
	tests := map[string]struct {
		page        *computepb.InstanceAggregatedList
		unreachable []string
		partial     bool
	}{
		"no results":                     {page: &computepb.InstanceAggregatedList{Items: scope("NO_RESULTS_ON_PAGE")}},
		"unreachable":                    {page: &computepb.InstanceAggregatedList{Items: scope("UNREACHABLE")}, unreachable: []string{"a"}},
		"a warning we know not":          {page: &computepb.InstanceAggregatedList{Items: scope("SOMETHING_NEW")}, unreachable: []string{"a"}},
		"unreachables":                   {page: &computepb.InstanceAggregatedList{Unreachables: []string{"projects/p/zones/a"}}, unreachable: []string{"a"}},
		"unreachables as URL":            {page: &computepb.InstanceAggregatedList{Unreachables: []string{"https://x/compute/v1/projects/p/zones/a"}}, unreachable: []string{"a"}},
		"a region":                       {page: &computepb.InstanceAggregatedList{Unreachables: []string{"regions/r"}}, partial: true},
		"region's scope":                 {page: &computepb.InstanceAggregatedList{Items: map[string]*computepb.InstancesScopedList{"regions/r": {Warning: top("UNREACHABLE")}}}, partial: true},
		"top, named":                     {page: &computepb.InstanceAggregatedList{Warning: top("UNREACHABLE", "zones/a", "zones/b")}, unreachable: []string{"a", "b"}},
		"top, not named":                 {page: &computepb.InstanceAggregatedList{Warning: top("PARTIAL_SUCCESS")}, partial: true},
		"top, explained by unreachables": {page: &computepb.InstanceAggregatedList{Warning: top("UNREACHABLE"), Unreachables: []string{"zones/a"}}, unreachable: []string{"a"}},
		"top, not explained by them":     {page: &computepb.InstanceAggregatedList{Warning: top("PARTIAL_SUCCESS"), Unreachables: []string{"zones/a"}}, unreachable: []string{"a"}, partial: true},
		"top, harmless":                  {page: &computepb.InstanceAggregatedList{Warning: top("NO_RESULTS_ON_PAGE")}},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			p := newPages()
			p.add(&computepb.InstanceAggregatedList{Items: scope("NO_RESULTS_ON_PAGE")})
			p.add(tt.page)
			got := p.listing()
			assert.Equal(t, tt.unreachable, got.Unreachable)
			assert.Equal(t, tt.partial, got.Partial)
			assert.Equal(t, len(tt.unreachable) == 0, got.Covers("a"), "one good page does not outweigh a bad one")
		})
	}
}

func TestEndlessListFails(t *testing.T) {
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprint(w, `{"nextPageToken":"again"}`)
	}))
	defer srv.Close()
	c, err := New(context.Background(), Config{Project: "demo"}, "inst", Options{Endpoint: srv.URL})
	require.NoError(t, err)
	defer c.Close()
	_, err = c.List(t.Context())
	assert.ErrorContains(t, err, `page "again" leads to itself`)
}

// Section 3.8: the client's aggregatedList ignores its context. The caller must not
// wait for it.
func TestListReturnsWhenItsContextEnds(t *testing.T) {
	arrived, released := make(chan struct{}), make(chan struct{})
	c := silent(t, time.Hour, func(r *http.Request) {
		close(arrived)
		<-r.Context().Done()
		close(released)
	})
	ctx, cancel := context.WithCancel(t.Context())
	go func() { <-arrived; cancel() }()
	_, err := c.List(ctx)
	require.ErrorIs(t, err, context.Canceled)
	select {
	case <-released:
		t.Fatal("the client obeys its context now: the watchdog is not needed any more")
	case <-time.After(50 * time.Millisecond):
	}
}

// A cancelled list must end at the HTTP client's timeout.
func TestListTimesOutWithTheHTTPClient(t *testing.T) {
	c := silent(t, 100*time.Millisecond, func(r *http.Request) { <-r.Context().Done() })
	_, err := c.List(t.Context())
	require.ErrorIs(t, err, context.DeadlineExceeded)
}

// silent is a Cloud whose Compute never responds.
func silent(t *testing.T, timeout time.Duration, handle func(*http.Request)) *Cloud {
	t.Helper()
	srv := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { handle(r) }))
	c, err := New(context.Background(), Config{Project: "demo"}, "inst", Options{Endpoint: srv.URL, Timeout: timeout})
	require.NoError(t, err)
	t.Cleanup(func() {
		srv.CloseClientConnections()
		srv.Close()
		require.NoError(t, c.Close())
	})
	return c
}
