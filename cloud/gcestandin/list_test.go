package gcestandin

import (
	"fmt"
	"maps"
	"slices"
	"testing"
	"time"

	"cloud.google.com/go/compute/apiv1/computepb"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/utils/ptr"
)

// fill adds n VMs to each of the zones.
func (b *harness) fill(n int, zones ...string) {
	b.t.Helper()
	for _, zone := range zones {
		for i := range n {
			_, err := b.Add(zone, machine(fmt.Sprintf("vm-%04d", i)))
			require.NoError(b.t, err)
		}
	}
}

// warnings are the codes of scope warnings of a page, by scope.
func warnings(page *computepb.InstanceAggregatedList) map[string]string {
	out := map[string]string{}
	for scope, list := range page.GetItems() {
		if list.Warning != nil {
			out[scope] = list.GetWarning().GetCode()
		}
	}
	return out
}

func count(page *computepb.InstanceAggregatedList) int {
	n := 0
	for _, list := range page.GetItems() {
		n += len(list.GetInstances())
	}
	return n
}

func TestListPagesAcrossZones(t *testing.T) {
	b := newHarness(t, Options{})
	b.fill(3, "europe-west1-b", "us-central1-a")
	var names []string
	token := ""
	var sizes []int
	for {
		page, err := b.page(&computepb.AggregatedListInstancesRequest{MaxResults: ptr.To[uint32](2), PageToken: &token})
		require.NoError(t, err)
		sizes = append(sizes, count(page))
		for _, scope := range slices.Sorted(maps.Keys(page.GetItems())) {
			for _, inst := range page.GetItems()[scope].GetInstances() {
				names = append(names, scope+"/"+inst.GetName())
			}
		}
		if token = page.GetNextPageToken(); token == "" {
			break
		}
	}
	assert.Equal(t, []int{2, 2, 2}, sizes)
	assert.Len(t, names, 6)
	assert.True(t, slices.IsSorted(names))
}

func TestListMarksEmptyZones(t *testing.T) {
	b := newHarness(t, Options{})
	b.fill(1, "europe-west1-b")
	page, err := b.page(&computepb.AggregatedListInstancesRequest{})
	require.NoError(t, err)
	assert.Equal(t, map[string]string{
		"zones/europe-west1-c": "NO_RESULTS_ON_PAGE", "zones/europe-west1-d": "NO_RESULTS_ON_PAGE", "zones/us-central1-a": "NO_RESULTS_ON_PAGE",
	}, warnings(page))
	assert.Nil(t, page.Warning)
}

func TestListFiltersByLabel(t *testing.T) {
	b := newHarness(t, Options{})
	other := machine("other")
	other.Labels = map[string]string{"crawl-installation": "other"}
	_, err := b.Add(zoneB, other)
	require.NoError(t, err)
	b.fill(2, zoneB)
	for filter, want := range map[string]int{
		"": 3, "labels.crawl-installation=demo": 2, `labels.crawl-installation = "other"`: 1, "labels.x=y": 0,
	} {
		page, err := b.page(&computepb.AggregatedListInstancesRequest{Filter: ptr.To(filter)})
		require.NoError(t, err)
		assert.Equal(t, want, count(page), filter)
	}
	_, err = b.page(&computepb.AggregatedListInstancesRequest{Filter: ptr.To("labels.x eq y")})
	code, _ := refusal(t, err)
	assert.Equal(t, 400, code, "a filter that it does not understand is not ignored")
}

func TestUnreachableZoneIsAWarningOnOnePage(t *testing.T) {
	for mode, onFirst := range map[ZoneMode]bool{ZoneUnreachable: true, ZoneUnreachableLate: false} {
		b := newHarness(t, Options{})
		b.fill(3, "europe-west1-b", "us-central1-a")
		b.SetZone("us-central1-a", mode)
		first, err := b.page(&computepb.AggregatedListInstancesRequest{MaxResults: ptr.To[uint32](2)})
		require.NoError(t, err)
		last, err := b.page(&computepb.AggregatedListInstancesRequest{MaxResults: ptr.To[uint32](2), PageToken: ptr.To(first.GetNextPageToken())})
		require.NoError(t, err)
		assert.Empty(t, last.GetNextPageToken())
		assert.Equal(t, 3, count(first)+count(last), "the zone's VMs are left out")
		with, without := last, first
		if onFirst {
			with, without = first, last
		}
		assert.Equal(t, "UNREACHABLE", warnings(with)["zones/us-central1-a"])
		assert.Equal(t, []string{"zones/us-central1-a"}, with.GetUnreachables())
		assert.NotContains(t, without.GetItems(), "zones/us-central1-a")
		assert.Empty(t, without.GetUnreachables())

		_, err = b.vms.Get(t.Context(), &computepb.GetInstanceRequest{Project: "demo", Zone: "us-central1-a", Instance: "vm-0000"})
		code, _ := refusal(t, err)
		assert.Equal(t, 503, code, "never a 404")
	}
}

func TestSilentZoneIsOmittedWithoutItsName(t *testing.T) {
	b := newHarness(t, Options{})
	b.fill(1, "us-central1-a")
	b.SetZone("us-central1-a", ZoneSilent)
	page, err := b.page(&computepb.AggregatedListInstancesRequest{})
	require.NoError(t, err)
	assert.NotContains(t, page.GetItems(), "zones/us-central1-a")
	assert.Empty(t, page.GetUnreachables())
	assert.Equal(t, "PARTIAL_SUCCESS", page.GetWarning().GetCode())
	assert.Len(t, b.VMs(), 1, "the VM lives on")
}

func TestListLag(t *testing.T) {
	b := newHarness(t, Options{Timing: Timing{ListLag: time.Minute}})
	listed := func() int {
		page, err := b.page(&computepb.AggregatedListInstancesRequest{})
		require.NoError(t, err)
		return count(page)
	}
	b.fill(1, zoneB)
	assert.Zero(t, listed())
	_, err := b.get("vm-0000")
	require.NoError(t, err, "only lists lag")
	b.pass(time.Minute)
	assert.Equal(t, 1, listed())
	require.NoError(t, b.Remove(zoneB, "vm-0000"))
	assert.Equal(t, 1, listed(), "still shown")
	b.pass(time.Minute)
	assert.Zero(t, listed())
}

func TestListRefusesBadPages(t *testing.T) {
	b := newHarness(t, Options{})
	for _, req := range []*computepb.AggregatedListInstancesRequest{
		{MaxResults: ptr.To[uint32](501)}, {PageToken: ptr.To("nonsense")}, {PageToken: ptr.To("from-7")},
	} {
		_, err := b.page(req)
		code, _ := refusal(t, err)
		assert.Equal(t, 400, code)
	}
}
