package engine

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/api/adapter"
	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/api/v1alpha1"
	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/cloud/gcestandin"
)

// failing puts until a failure of that class shows and returns the answer.
func (p *px) failing(class adapter.FailureClass) adapter.Instance {
	p.b.t.Helper()
	var got adapter.Instance
	p.b.until(5*time.Minute, "failure "+string(class), func() bool {
		var err error
		got, err = p.tryPut()
		return err == nil && got.Failure != nil && got.Failure.Class == class
	})
	return got
}

// Row C22: a missing image is permanent and no retry storm.
func TestC22MissingImageLatchesUntilTheSpecChanges(t *testing.T) {
	b := newBench(t, benchConfig{images: []string{"global/images/squid-2"}})
	p := b.proxy(1)
	b.drive()
	got := p.failing(adapter.FailurePermanent)
	assert.Contains(t, got.Failure.Message, "squid-1")
	assert.Zero(t, got.Failure.RetryAfterSeconds)
	b.pass(10 * time.Minute)
	p.put()
	b.pass(10 * time.Minute)
	assert.Equal(t, 1, b.count("insert"))

	p.req.Placement.Image, p.req.SpecHash = "squid-2", "v1-bb"
	p.running()
}

func TestPermanentFailureOfAnOperationLatches(t *testing.T) {
	for _, code := range []string{"PERMISSIONS_ERROR", "INVALID_FIELD_VALUE", "RESOURCE_NOT_FOUND"} {
		b := newBench(t, benchConfig{timing: realistic()})
		b.gce.AddFault(gcestandin.Fault{Op: "insert", Count: 1, OperationError: &gcestandin.OperationError{Code: code}})
		p := b.proxy(1)
		b.drive()
		p.failing(adapter.FailurePermanent)
		b.pass(14 * time.Minute)
		assert.Equal(t, 1, b.count("insert"), code)
		p.req.Generation++ // the same hash: somebody asked for another attempt
		p.running()
	}
}

func TestPermanentFailureOfAnOutdatedRequestIsNotHeldAgainstTheNewOne(t *testing.T) {
	b := newBench(t, benchConfig{timing: realistic()})
	b.gce.AddFault(gcestandin.Fault{Op: "insert", Count: 1, OperationError: &gcestandin.OperationError{Code: "INVALID_FIELD_VALUE"}})
	p := b.proxy(1)
	b.drive()
	p.put()
	b.pass(time.Second)
	p.req.SpecHash, p.req.Generation = "v1-bb", 2
	p.put()
	p.running()
	assert.Equal(t, 2, b.count("insert"))
}

func TestMissingPlacementIsNamedAndMakesNoCall(t *testing.T) {
	b := newBench(t, benchConfig{})
	p := b.proxy(1)
	p.req.Placement = v1alpha1.Placement{}
	b.drive()
	got := p.failing(adapter.FailurePermanent)
	for _, field := range []string{"placement.zone", "placement.machineType", "placement.image"} {
		assert.Contains(t, got.Failure.Message, field)
	}
	assert.Zero(t, b.count("insert"))
}

// Section 3.15: 403 rateLimitExceeded means fewer calls, for all of the account.
func TestRateLimitOfSection315PausesTheAccount(t *testing.T) {
	b := newBench(t, benchConfig{})
	b.gce.AddFault(gcestandin.Fault{Op: "insert", Count: 1, Status: 403, Reason: "rateLimitExceeded", Message: "Rate Limit Exceeded"})
	p := b.proxy(1)
	b.drive()
	got := p.failing(adapter.FailureTransient)
	assert.Positive(t, got.Failure.RetryAfterSeconds)
	other := b.proxy(2)
	other.put()
	b.pass(10 * time.Second)
	assert.Equal(t, 1, b.count("insert"), "others wait as well")
	b.pass(10 * time.Second)
	assert.Equal(t, 3, b.count("insert"))
	p.running()
	other.running()
}

func TestRateLimitedListBacksOff(t *testing.T) {
	b := newBench(t, benchConfig{})
	b.gce.AddFault(gcestandin.Fault{Op: "list", Count: 1, Status: 403, Reason: "rateLimitExceeded"})
	b.pass(29 * time.Second)
	assert.Equal(t, 1, b.count("list"))
	_, err := b.proxy(1).tryPut()
	require.ErrorIs(t, err, adapter.ErrNotReady)
	assert.ErrorContains(t, err, "rateLimitExceeded", "people can see why")
	b.pass(time.Second)
	assert.Equal(t, 2, b.count("list"))
}

func TestTransientFailuresBackOff(t *testing.T) {
	b := newBench(t, benchConfig{})
	b.gce.AddFault(gcestandin.Fault{Op: "insert", Count: 4, Status: 409, Reason: "resourceInUse"})
	p := b.proxy(1)
	b.drive()
	p.failing(adapter.FailureTransient)
	var at []time.Duration
	p.running()
	var last time.Time
	for _, c := range b.gce.Calls() {
		if c.Op == "insert" {
			if !last.IsZero() {
				at = append(at, c.At.Sub(last))
			}
			last = c.At
		}
	}
	assert.Equal(t, []time.Duration{2 * time.Second, 4 * time.Second, 8 * time.Second, 16 * time.Second}, at)
}
