package engine

import (
	"slices"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/api/adapter"
	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/cloud/gcestandin"
)

func (b *bench) requestIDs(op string) []string {
	var out []string
	for _, c := range b.gce.Calls() {
		if c.Op == op {
			out = append(out, c.RequestID)
		}
	}
	return out
}

// Row C17 and section 3.4: when the outcome of an insert is not known, the very
// same call is sent again, under the same request id.
func TestC17InsertWithoutAnswerIsRepeatedAsTheSameCall(t *testing.T) {
	tests := map[string]gcestandin.Fault{
		"answer dropped":  {Op: "insert", Count: 3, DropAnswer: true},
		"request dropped": {Op: "insert", Count: 3, DropRequest: true},
		"server error":    {Op: "insert", Count: 3, Status: 502},
	}
	for name, fault := range tests {
		t.Run(name, func(t *testing.T) {
			b := newBench(t, benchConfig{timing: realistic()})
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

func TestC17RefusalThatPassesDoesNotEndTheRepeating(t *testing.T) {
	b := newBench(t, benchConfig{timing: realistic()})
	b.gce.AddFault(gcestandin.Fault{Op: "insert", Count: 1, DropRequest: true})
	b.gce.AddFault(gcestandin.Fault{Op: "insert", Count: 1, Status: 403, Reason: "rateLimitExceeded"})
	p := b.proxy(1)
	p.running()
	ids := b.requestIDs("insert")
	assert.Len(t, ids, 3)
	assert.Len(t, slices.Compact(ids), 1)
}

func TestC17RepeatKeepsToTheFirstCallAlthoughTheSpecChanged(t *testing.T) {
	b := newBench(t, benchConfig{timing: realistic()})
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

func TestEveryDecisionHasAnIDOfItsOwn(t *testing.T) {
	b := newBench(t, benchConfig{})
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

// After half an hour nobody knows whether the provider still knows the request
// id; by then the instance itself is looked at.
func TestC17RepeatingEndsAndTheInstanceDecides(t *testing.T) {
	b := newBench(t, benchConfig{timing: realistic()})
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

// An answer to a repeat that refuses it for good says nothing about the first
// sending.
func TestC17RefusedRepeatDoesNotForgetTheFirstSending(t *testing.T) {
	b := newBench(t, benchConfig{timing: realistic()})
	p := b.proxy(1)
	b.drive()
	b.gce.AddFault(gcestandin.Fault{Op: "insert", Count: 1, DropAnswer: true})
	b.gce.AddFault(gcestandin.Fault{Op: "insert", Count: 1, Status: 403, Reason: "quotaExceeded"})
	b.gce.AddFault(gcestandin.Fault{Op: "list", Status: 500}) // only the read can tell
	p.running()
	assert.Equal(t, 2, b.count("insert"))
	assert.Len(t, b.gce.VMs(), 1)
}

// A crash loses the request id. The name and the list take its place.
func TestC17CrashAfterAnAcceptedInsertWithoutAnswer(t *testing.T) {
	b := newBench(t, benchConfig{timing: realistic()})
	b.gce.AddFault(gcestandin.Fault{Op: "insert", Count: 1, DropAnswer: true})
	p := b.proxy(1)
	b.drive()
	p.put()
	b.drive()
	b.restart()
	p.running()
	assert.Equal(t, 1, b.count("insert"))
}
