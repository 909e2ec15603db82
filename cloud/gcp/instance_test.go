package gcp

import (
	"testing"
	"time"

	"cloud.google.com/go/compute/apiv1/computepb"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/utils/ptr"

	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/api/adapter"
	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/cloud/provider"
)

// Section 3.9: all twelve statuses, and one that does not exist yet.
func TestStates(t *testing.T) {
	type mapped struct {
		state   adapter.State
		leaving bool
	}
	want := map[string]mapped{
		"PENDING":        {adapter.StateProvisioning, false},
		"PROVISIONING":   {adapter.StateProvisioning, false},
		"STAGING":        {adapter.StateProvisioning, false},
		"RUNNING":        {adapter.StateRunning, false},
		"PENDING_STOP":   {adapter.StateStopping, false},
		"STOPPING":       {adapter.StateStopping, true},
		"DEPROVISIONING": {adapter.StateStopping, true},
		"SUSPENDING":     {adapter.StateStopping, true},
		"STOPPED":        {adapter.StateStopped, false},
		"TERMINATED":     {adapter.StateStopped, false},
		"SUSPENDED":      {adapter.StateStopped, false},
		"REPAIRING":      {adapter.StateProvisioning, false},
		"HIBERNATING":    {adapter.StateProvisioning, false},
		"":               {adapter.StateProvisioning, false},
	}
	for status, m := range want {
		s, leaving := state(status, "1.2.3.4")
		assert.Equal(t, m, mapped{s, leaving}, status)
	}
	for status := range computepb.Instance_Status_value {
		if status != "UNDEFINED_STATUS" {
			assert.Contains(t, want, status, "a status that this release does not decide about")
		}
	}
}

// Section 3.10: natIP can be empty although the VM runs.
func TestRunningWithoutAddressIsProvisioning(t *testing.T) {
	s, _ := state("RUNNING", "")
	assert.Equal(t, adapter.StateProvisioning, s)
}

// Row F7: creation times carry Google's offset.
func TestF7CreationTimeKeepsItsOffset(t *testing.T) {
	in := &computepb.Instance{Name: ptr.To("a"), CreationTimestamp: ptr.To("2026-03-08T01:59:59.123-08:00")}
	got := fromWire(zoneB, in).CreatedAt
	assert.Equal(t, time.Date(2026, 3, 8, 9, 59, 59, 123e6, time.UTC), got)
	in.CreationTimestamp = ptr.To("yesterday")
	assert.Zero(t, fromWire(zoneB, in).CreatedAt)
}

func TestProviderIDRoundTrip(t *testing.T) {
	var c Cloud
	ref := provider.Ref{Zone: zoneB, Name: "proxy-a"}
	assert.Equal(t, "zones/europe-west1-b/instances/proxy-a", c.ProviderID(ref))
	got, err := c.ParseProviderID(c.ProviderID(ref))
	require.NoError(t, err)
	assert.Equal(t, ref, got)
	for _, bad := range []string{"", "ns/pod", "zones//instances/a", "zones/a/instances/../b", "zones/a/instances/a/b", "x/zones/a/instances/b"} {
		_, err := c.ParseProviderID(bad)
		assert.Error(t, err, bad)
	}
}

func FuzzParseProviderID(f *testing.F) {
	f.Add("zones/europe-west1-b/instances/proxy-a")
	f.Add("zones/a/instances/..")
	f.Fuzz(func(t *testing.T, id string) {
		var c Cloud
		if ref, err := c.ParseProviderID(id); err == nil {
			require.Equal(t, id, c.ProviderID(ref))
		}
	})
}
