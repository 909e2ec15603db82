package reconcile

import (
	"testing"
	"time"

	"cloud.google.com/go/compute/apiv1/computepb"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/utils/ptr"

	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/api/adapter"
	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/cloud/gcp"
)

// Row C13: the name is taken while the old VM is being deleted. The insert is retried,
// and it is no shortage.
func TestC13NameOfAVMBeingDeletedIsRetried(t *testing.T) {
	b := newHarness(t, harnessConfig{timing: realistic()})
	p := b.proxy(1)
	b.drive()
	// A VM of ours that no list contains, because it lost its installation label.
	b.foreign(p, map[string]string{gcp.LabelUID: p.req.UID})
	b.remove(p)
	p.put()
	b.pass(5 * time.Second)
	got := p.put()
	assert.Equal(t, adapter.StateStopping, got.State)
	assert.Nil(t, got.Failure)
	got = p.running()
	assert.Equal(t, "v1-aa", got.SpecHash)
	assert.Equal(t, 2, b.count("insert"))
}

// Row C14: another owner's VM with our name is never adopted.
func TestC14ForeignVMOfOurNameIsNeitherAdoptedNorDeleted(t *testing.T) {
	for name, labels := range map[string]map[string]string{
		"no labels":      nil,
		"another's UID":  {gcp.LabelUID: "11111111-0000-4000-8000-000000000000"},
		"another's all":  {gcp.LabelUID: "11111111-0000-4000-8000-000000000000", gcp.LabelInstallation: "inst"},
		"our hash alone": {gcp.LabelSpecHash: "v1-aa"},
	} {
		t.Run(name, func(t *testing.T) {
			b := newHarness(t, harnessConfig{})
			p := b.proxy(1)
			b.foreign(p, labels)
			b.drive()
			p.failing(adapter.FailureRefused)
			b.pass(5 * time.Second)
			got := p.put()
			assert.Contains(t, got.Failure.Message, "is taken by an instance")
			assert.Empty(t, got.InstanceID)
			b.keepPutting(p, 24*time.Hour)
			assert.LessOrEqual(t, b.count("insert"), 21, "in a day")
			assert.Contains(t, p.put().Failure.Message, "is taken by an instance")

			b.until(5*time.Minute, "Absent", func() bool { return p.delete().State == adapter.StateAbsent })
			assert.Len(t, b.gce.VMs(), 1, "still there")
			assert.Zero(t, b.count("delete"))
		})
	}
}

// foreign adds a VM with p's name and these labels.
func (b *harness) foreign(p *hookProxy, labels map[string]string) {
	b.t.Helper()
	_, err := b.gce.Add(zoneB, &computepb.Instance{
		Name: ptr.To(p.name()), MachineType: ptr.To("zones/z/machineTypes/m"), Labels: labels,
		Disks:             []*computepb.AttachedDisk{{Boot: ptr.To(true), InitializeParams: &computepb.AttachedDiskInitializeParams{SourceImage: ptr.To("i")}}},
		NetworkInterfaces: []*computepb.NetworkInterface{{}},
	})
	require.NoError(b.t, err)
}

// remove deletes p's VM as a user with a console may, with the usual delay.
func (b *harness) remove(p *hookProxy) {
	b.t.Helper()
	ref, err := b.cloud.ParseProviderID("zones/" + zoneB + "/instances/" + p.name())
	require.NoError(b.t, err)
	_, err = b.cloud.Delete(b.t.Context(), ref, "11111111-1111-4111-8111-111111111111")
	require.NoError(b.t, err)
}

// Row C11: an instance that is lost repeatedly is made again with backoff.
func TestC11LossesBackOff(t *testing.T) {
	b := newHarness(t, harnessConfig{})
	p := b.proxy(1)
	p.running()
	for range 60 * 10 {
		b.pass(6 * time.Second)
		got := p.put()
		if got.State == adapter.StateRunning {
			_ = b.gce.Remove(zoneB, p.name()) // an error when it was removed before a list contained it
		}
	}
	assert.LessOrEqual(t, b.count("insert"), 9, "in an hour")
	got := p.put()
	require.NotNil(t, got.Failure)
	assert.Contains(t, got.Failure.Message, "lost")
	assert.Positive(t, got.Failure.RetryAfterSeconds)
}

func TestC11ReplacementsDoNotBackOff(t *testing.T) {
	b := newHarness(t, harnessConfig{})
	p := b.proxy(1)
	for range 5 {
		old := p.running()
		p.req.Replace = old.InstanceID
		b.until(time.Minute, "replaced", func() bool {
			got := p.put()
			return got.State == adapter.StateRunning && got.InstanceID != old.InstanceID
		})
	}
	assert.Equal(t, 5, b.made.counts["replaced"])
}

// Row C20: a stale list must not cause repeated inserts, and maxInstances bounds the
// damage of other defects.
func TestC20StaleListCausesNoSecondInsert(t *testing.T) {
	timing := realistic()
	timing.ListLag = time.Minute
	b := newHarness(t, harnessConfig{timing: timing})
	p := b.proxy(1)
	p.running()
	b.pass(3 * time.Minute)
	assert.Equal(t, adapter.StateRunning, p.put().State)
	assert.Equal(t, 1, b.count("insert"))
	p.absent()
}

func TestC20MaxInstancesOfTheAccount(t *testing.T) {
	b := newHarness(t, harnessConfig{timing: realistic(), gcp: gcp.Config{MaxInstances: 2}})
	ps := []*hookProxy{b.proxy(1), b.proxy(2), b.proxy(3)}
	b.drive()
	for _, p := range ps {
		p.put()
	}
	b.pass(time.Minute)
	assert.Len(t, b.gce.VMs(), 2)
	var waiting, running *hookProxy
	for _, p := range ps {
		if got := p.put(); got.State == adapter.StateRunning {
			running = p
		} else {
			waiting = p
			require.NotNil(t, got.Failure)
			assert.Equal(t, adapter.FailureQuotaExceeded, got.Failure.Class)
			assert.Contains(t, got.Failure.Message, "maxInstances of the provider config is 2")
		}
	}
	running.absent()
	waiting.running()
}

// Row C21: the labels of ownership are part of the insert.
func TestC21LabelsArePartOfTheInsert(t *testing.T) {
	b := newHarness(t, harnessConfig{timing: realistic()})
	p := b.proxy(1)
	b.drive()
	p.put()
	b.drive()
	require.Len(t, p.vms(), 1)
	assert.Equal(t, "inst", p.vms()[0].Labels[gcp.LabelInstallation])
	assert.Equal(t, "v1-aa", p.vms()[0].Labels[gcp.LabelSpecHash])
}
