package reconcile

import (
	"log/slog"
	"math"
	"slices"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	clocktesting "k8s.io/utils/clock/testing"

	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/api/adapter"
	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/api/v1alpha1"
	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/cloud/gcestandin"
	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/cloud/provider"
)

func (b *harness) requestIDs(op string) []string {
	var out []string
	for _, c := range b.gce.Calls() {
		if c.Op == op {
			out = append(out, c.RequestID)
		}
	}
	return out
}

// Row C17 and section 3.4: an insert with an unknown outcome is retried with the same
// request id.
func TestC17InsertWithoutResponseIsRetriedWithItsRequestID(t *testing.T) {
	tests := map[string]gcestandin.Fault{
		"answer dropped":  {Op: "insert", Count: 3, DropAnswer: true},
		"request dropped": {Op: "insert", Count: 3, DropRequest: true},
		"server error":    {Op: "insert", Count: 3, Status: 502},
	}
	for name, fault := range tests {
		t.Run(name, func(t *testing.T) {
			b := newHarness(t, harnessConfig{timing: realistic()})
			b.gce.AddFault(fault)
			p := b.proxy(1)
			b.drive()
			p.put()
			b.drive()
			got := p.put()
			assert.NotEqual(t, adapter.StateAbsent, got.State, "it may be there")
			require.NotNil(t, got.Failure)
			assert.Equal(t, adapter.FailureTransient, got.Failure.Class)
			p.running()
			ids := b.requestIDs("insert")
			assert.Len(t, slices.Compact(ids), 1, "one decision, one id")
			assert.NoError(t, uuid.Validate(ids[0]))
			assert.Len(t, b.gce.VMs(), 1)
		})
	}
}

func TestC17RateLimitedRetryKeepsItsRequestID(t *testing.T) {
	b := newHarness(t, harnessConfig{timing: realistic()})
	b.gce.AddFault(gcestandin.Fault{Op: "insert", Count: 1, DropRequest: true})
	b.gce.AddFault(gcestandin.Fault{Op: "insert", Count: 1, Status: 403, Reason: "rateLimitExceeded"})
	p := b.proxy(1)
	p.running()
	ids := b.requestIDs("insert")
	assert.Len(t, ids, 3)
	assert.Len(t, slices.Compact(ids), 1)
}

func TestC17RetryIsTheFirstCallAfterASpecChange(t *testing.T) {
	b := newHarness(t, harnessConfig{timing: realistic()})
	b.gce.AddFault(gcestandin.Fault{Op: "insert", Count: 2, DropRequest: true})
	p := b.proxy(1)
	b.drive()
	p.put()
	b.drive()
	p.req.SpecHash, p.req.Placement.Zone = "v1-bb", zoneC
	got := p.running()
	assert.Equal(t, "v1-aa", got.SpecHash, "the hook sees the old hash and decides")
	assert.Equal(t, []string{zoneB, zoneB, zoneB}, b.insertZones())
}

func TestEveryDecisionHasItsOwnRequestID(t *testing.T) {
	b := newHarness(t, harnessConfig{})
	p := b.proxy(1)
	for range 3 {
		old := p.running()
		p.req.Replace = old.InstanceID
		b.until(time.Minute, "replaced", func() bool {
			got := p.put()
			return got.State == adapter.StateRunning && got.InstanceID != old.InstanceID
		})
	}
	ids := append(b.requestIDs("insert"), b.requestIDs("delete")...)
	slices.Sort(ids)
	assert.Len(t, ids, 7)
	assert.Len(t, slices.Compact(ids), 7)
}

// After half an hour the provider may have dropped the request id; the instance itself
// is read then.
func TestC17RetriesTimeOutAndTheInstanceIsRead(t *testing.T) {
	b := newHarness(t, harnessConfig{timing: realistic()})
	b.gce.AddFault(gcestandin.Fault{Op: "insert", Status: 500})
	p := b.proxy(1)
	b.drive()
	for range 50 {
		p.put()
		b.pass(time.Minute)
	}
	ids := slices.Compact(b.requestIDs("insert"))
	assert.GreaterOrEqual(t, len(ids), 2, "a new decision")
	assert.Less(t, b.count("insert"), 30, "with back-off")
	b.gce.ClearFaults()
	b.until(10*time.Minute, "Running", func() bool { return p.put().State == adapter.StateRunning })
}

// A permanent error of a retry does not mean that the first request had no effect.
func TestC17RefusedRetryKeepsThePlaceOfTheFirstRequest(t *testing.T) {
	b := newHarness(t, harnessConfig{timing: realistic()})
	p := b.proxy(1)
	b.drive()
	b.gce.AddFault(gcestandin.Fault{Op: "insert", Count: 1, DropAnswer: true})
	b.gce.AddFault(gcestandin.Fault{Op: "insert", Count: 1, Status: 403, Reason: "quotaExceeded"})
	b.gce.AddFault(gcestandin.Fault{Op: "list", Status: 500}) // so that only a read shows the VM
	p.running()
	assert.Equal(t, 2, b.count("insert"))
	assert.Len(t, b.gce.VMs(), 1)
}

// A crash loses the request id. The name and the list replace it.
func TestC17CrashAfterAnInsertWithoutResponse(t *testing.T) {
	b := newHarness(t, harnessConfig{timing: realistic()})
	b.gce.AddFault(gcestandin.Fault{Op: "insert", Count: 1, DropAnswer: true})
	p := b.proxy(1)
	b.drive()
	p.put()
	b.drive()
	b.restart()
	p.running()
	assert.Equal(t, 1, b.count("insert"))
}

// failing retries PUT until a failure of that class and returns the response.
func (p *hookProxy) failing(class adapter.FailureClass) adapter.Instance {
	p.b.t.Helper()
	var got adapter.Instance
	p.b.until(5*time.Minute, "failure "+string(class), func() bool {
		var err error
		got, err = p.tryPut()
		return err == nil && got.Failure != nil && got.Failure.Class == class
	})
	return got
}

// Row C22: a missing image is permanent and causes no retries.
func TestC22MissingImageLatchesUntilTheSpecChanges(t *testing.T) {
	b := newHarness(t, harnessConfig{images: []string{"global/images/squid-2"}})
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

// badValue is an operation's error that names a value of the spec.
func badValue() *gcestandin.OperationError {
	return &gcestandin.OperationError{Code: "INVALID_FIELD_VALUE", HTTPStatus: 400, Message: "Invalid value for field 'resource.machineType': 'e9-pico'."}
}

func TestPermanentFailureOfAnOperationLatches(t *testing.T) {
	for code, failure := range map[string]*gcestandin.OperationError{
		"value": badValue(),
		"image": {Code: "RESOURCE_NOT_FOUND", Message: "The resource 'projects/demo/global/images/squid-1' was not found"},
	} {
		b := newHarness(t, harnessConfig{timing: realistic()})
		b.gce.AddFault(gcestandin.Fault{Op: "insert", Count: 1, OperationError: failure})
		p := b.proxy(1)
		b.drive()
		p.failing(adapter.FailurePermanent)
		b.pass(14 * time.Minute)
		assert.Equal(t, 1, b.count("insert"), code)
		p.req.Generation++ // the same hash: a user requested a retry
		p.running()
	}
}

func TestPermanentFailureOfAStaleRequestDoesNotLatch(t *testing.T) {
	b := newHarness(t, harnessConfig{timing: realistic()})
	b.gce.AddFault(gcestandin.Fault{Op: "insert", Count: 1, OperationError: badValue()})
	p := b.proxy(1)
	b.drive()
	p.put()
	b.pass(time.Second)
	p.req.SpecHash, p.req.Generation = "v1-bb", 2
	p.put()
	p.running()
	assert.Equal(t, 2, b.count("insert"))
}

func TestMissingPlacementFailsWithoutACall(t *testing.T) {
	b := newHarness(t, harnessConfig{})
	p := b.proxy(1)
	p.req.Placement = v1alpha1.Placement{}
	b.drive()
	got := p.failing(adapter.FailurePermanent)
	for _, field := range []string{"placement.zone", "placement.machineType", "placement.image"} {
		assert.Contains(t, got.Failure.Message, field)
	}
	assert.Zero(t, b.count("insert"))
}

// Section 3.15: 403 rateLimitExceeded throttles the whole account.
func TestRateLimitPausesTheAccount(t *testing.T) {
	b := newHarness(t, harnessConfig{})
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
	b := newHarness(t, harnessConfig{})
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
	b := newHarness(t, harnessConfig{})
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

// What the spec does not ask for is never final: it is retried ever more slowly, and
// the failure names what the cloud reported.
func TestRefusalIsRetriedEverMoreSlowly(t *testing.T) {
	for name, fault := range map[string]gcestandin.Fault{
		"permission":            {Status: 403, Reason: "forbidden", Message: "Required 'compute.instances.create' permission for 'projects/demo'"},
		"API disabled":          {Status: 403, Reason: "accessNotConfigured", Message: "Compute Engine API is disabled"},
		"policy":                {OperationError: &gcestandin.OperationError{Code: "CONDITION_NOT_MET", Message: "Constraint violated", HTTPStatus: 412}},
		"code of the future":    {OperationError: &gcestandin.OperationError{Code: "MOON_PHASE", Message: "The moon is full", HTTPStatus: 400}},
		"reason of the future":  {Status: 400, Reason: "moonPhase", Message: "The moon is full"},
		"network not there yet": {Status: 404, Reason: "notFound", Message: "The resource 'projects/demo/global/networks/default' was not found"},
	} {
		t.Run(name, func(t *testing.T) {
			b := newHarness(t, harnessConfig{timing: realistic()})
			fault.Op = "insert"
			b.gce.AddFault(fault)
			p := b.proxy(1)
			b.drive()
			got := p.failing(adapter.FailureRefused)
			message := fault.Message
			if fault.OperationError != nil {
				message = fault.OperationError.Message
			}
			assert.Contains(t, got.Failure.Message, message)
			assert.InDelta(t, 60, got.Failure.RetryAfterSeconds, 15)
			b.keepPutting(p, 9*time.Hour)
			assert.Equal(t, []float64{1, 2, 4, 8, 16, 32, 64, 128, 240}, b.insertGaps()[:9])
			b.gce.ClearFaults()
			b.keepPutting(p, 5*time.Hour)
			assert.Equal(t, adapter.StateRunning, p.put().State, "no edit is needed")
		})
	}
}

// An outage of the cloud does not lengthen the backoff of the refusal that follows it,
// nor that of a taken name; schedules that alternate both back off.
func TestEachKindOfFailureBacksOffForItself(t *testing.T) {
	a := newAccount("demo", &Options{Log: slog.New(slog.DiscardHandler), Clock: clocktesting.NewFakeClock(t0)})
	px := &proxy{uid: "u"}
	delay := func(err error, first, most time.Duration) time.Duration {
		return a.backOff(px, err, t0, first, most).Sub(t0)
	}
	for range 9 {
		delay(provider.ErrTransient, retryFirst, retryMost)
	}
	assert.Equal(t, time.Minute, delay(provider.ErrRefused, refusedFirst, refusedMost))
	assert.Equal(t, 2*time.Second, delay(provider.ErrAlreadyExists, retryFirst, refusedMost))
	assert.Greater(t, delay(provider.ErrTransient, retryFirst, retryMost), 4*time.Minute)
	assert.InDelta(t, 108, delay(provider.ErrRefused, refusedFirst, refusedMost).Seconds(), 12)
	assert.Equal(t, 4*time.Second, delay(provider.ErrAlreadyExists, retryFirst, refusedMost))
	px.resetBackoff()
	assert.Equal(t, 2*time.Second, delay(provider.ErrTransient, retryFirst, retryMost), "a success ends them all")
}

func TestRefusalAfterAnOutageIsRetriedWithinAMinute(t *testing.T) {
	b := newHarness(t, harnessConfig{timing: realistic()})
	b.gce.AddFault(gcestandin.Fault{Op: "insert", Count: 9, Status: 409, Reason: "resourceInUse"})
	b.gce.AddFault(gcestandin.Fault{Op: "insert", Count: 1, Status: 403, Reason: "forbidden"})
	p := b.proxy(1)
	b.drive()
	b.until(30*time.Minute, "the refusal", func() bool { p.put(); return b.count("insert") == 10 })
	b.until(61*time.Second, "a retry", func() bool { p.put(); return b.count("insert") == 11 })
	p.running()
}

func TestEditAfterARefusalIsTriedAtOnce(t *testing.T) {
	b := newHarness(t, harnessConfig{})
	b.gce.AddFault(gcestandin.Fault{Op: "insert", Status: 403, Reason: "forbidden"})
	p := b.proxy(1)
	b.keepPutting(p, 5*time.Hour)
	before := b.count("insert")
	b.gce.ClearFaults()
	b.keepPutting(p, time.Minute)
	require.Equal(t, before, b.count("insert"))
	p.req.Generation++
	p.put()
	b.drive()
	assert.Equal(t, before+1, b.count("insert"))
	p.running()
}

// keepPutting is the hook's resync while an instance is missing.
func (b *harness) keepPutting(p *hookProxy, d time.Duration) {
	b.t.Helper()
	b.drive()
	for range d / (20 * time.Second) {
		p.put()
		b.drive()
		b.clock.Step(20 * time.Second)
		b.drive()
	}
}

// insertGaps are the times between inserts, in minutes: rounded up to the next power of
// two, and without jitter.
func (b *harness) insertGaps() []float64 {
	var out []float64
	var last time.Time
	for _, c := range b.gce.Calls() {
		if c.Op != "insert" {
			continue
		}
		if gap := c.At.Sub(last).Minutes(); !last.IsZero() {
			want := math.Exp2(math.Round(math.Log2(gap / 0.9)))
			if gap > 140 {
				want = 240
			}
			require.InDelta(b.t, want*0.9, gap, want*0.1+0.5, "jitter is a fifth at most")
			out = append(out, want)
		}
		last = c.At
	}
	return out
}

// The boot disk of a VM that was deleted without its disk has the name: the insert is
// refused, while there is no VM.
func TestNameTakenByADiskBacksOffAndNamesIt(t *testing.T) {
	b := newHarness(t, harnessConfig{timing: realistic()})
	p := b.proxy(1)
	disk := "projects/demo/zones/" + zoneB + "/disks/" + p.name()
	b.gce.AddFault(gcestandin.Fault{Op: "insert", Status: 409, Reason: "alreadyExists", Message: "The resource '" + disk + "' already exists"})
	b.drive()
	p.put()
	b.pass(time.Minute)
	got := p.put()
	require.NotNil(t, got.Failure)
	assert.Equal(t, adapter.FailureRefused, got.Failure.Class)
	assert.Equal(t, adapter.StateAbsent, got.State)
	assert.Contains(t, got.Failure.Message, disk)
	assert.Contains(t, got.Failure.Message, "delete the resource that the cloud names")
	b.keepPutting(p, 24*time.Hour)
	assert.LessOrEqual(t, b.count("insert"), 21, "in a day")
	assert.LessOrEqual(t, b.count("get"), 3*21)
	b.gce.ClearFaults()
	p.req.Generation++ // or wait
	p.running()
}

// The same conflict as the operation's error.
func TestNameTakenInAnOperationBacksOff(t *testing.T) {
	b := newHarness(t, harnessConfig{timing: realistic()})
	b.gce.AddFault(gcestandin.Fault{Op: "insert", OperationError: &gcestandin.OperationError{Code: "RESOURCE_ALREADY_EXISTS", Message: "the disk already exists"}})
	p := b.proxy(1)
	b.drive()
	got := p.failing(adapter.FailureRefused)
	assert.Contains(t, got.Failure.Message, "the disk already exists")
	b.keepPutting(p, 24*time.Hour)
	assert.LessOrEqual(t, b.count("insert"), 21, "in a day")
}

// A subnetwork without addresses is short of capacity: the next zone is tried, and
// then the first one again.
func TestExhaustedSubnetworkFallsBackAndIsRetried(t *testing.T) {
	exhausted := gcestandin.Fault{Op: "insert", Count: 1, OperationError: &gcestandin.OperationError{Code: "IP_SPACE_EXHAUSTED_WITH_DETAILS", HTTPStatus: 400}}
	t.Run("fallback", func(t *testing.T) {
		b := newHarness(t, harnessConfig{timing: realistic()})
		b.gce.AddFault(exhausted)
		p := b.proxy(1)
		p.req.Placement.FallbackZones = []v1alpha1.Zone{zoneC}
		p.running()
		assert.Equal(t, []string{zoneB, zoneC}, b.insertZones())
	})
	t.Run("no other zone", func(t *testing.T) {
		b := newHarness(t, harnessConfig{timing: realistic()})
		b.gce.AddFault(exhausted)
		p := b.proxy(1)
		b.drive()
		got := p.failing(adapter.FailureStockout)
		assert.Contains(t, got.Failure.Message, "IP_SPACE_EXHAUSTED_WITH_DETAILS")
		p.running()
		assert.Equal(t, []string{zoneB, zoneB}, b.insertZones())
	})
}

// The backoff of failed polls does not count the polls that worked before.
func TestPollThatFailsLateIsRepeatedSoon(t *testing.T) {
	timing := realistic()
	timing.Insert = 3 * time.Minute
	b := newHarness(t, harnessConfig{timing: timing})
	p := b.proxy(1)
	b.drive()
	p.put()
	b.pass(80 * time.Second)
	before := b.count("operation")
	require.GreaterOrEqual(t, before, 6)
	b.gce.AddFault(gcestandin.Fault{Op: "operation", Count: 2, Status: 503})
	b.until(pollMost, "a poll that fails", func() bool { return b.count("operation") == before+1 })
	b.pass(pollFirst)
	assert.Equal(t, before+2, b.count("operation"))
	b.pass(2 * pollFirst)
	assert.Equal(t, before+3, b.count("operation"))
}

func TestPollsThatFailBackOffAndShow(t *testing.T) {
	b := newHarness(t, harnessConfig{timing: realistic()})
	b.gce.AddFault(gcestandin.Fault{Op: "operation", Status: 403, Reason: "forbidden", Message: "Required 'compute.zoneOperations.get' permission"})
	p := b.proxy(1)
	b.drive()
	got := p.failing(adapter.FailureRefused)
	assert.Contains(t, got.Failure.Message, "compute.zoneOperations.get")
	p.running()
	b.pass(15 * time.Minute)
	assert.LessOrEqual(t, b.count("operation"), 10)
	b.gce.ClearFaults()
	b.until(10*time.Minute, "no failure", func() bool { return p.put().Failure == nil })
}
