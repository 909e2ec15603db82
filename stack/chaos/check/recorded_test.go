package check

import (
	"bufio"
	"compress/gzip"
	"encoding/json"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/stack/chaos/history"
)

// recorded is a real campaign, cut down to twelve of its 200 Proxies: five minutes with
// kills, freezes, outages, edits and deletions, in which all promises were kept.
func recorded(t *testing.T) []history.Record {
	t.Helper()
	file, err := os.Open("testdata/campaign.jsonl.gz")
	require.NoError(t, err)
	defer file.Close()
	text, err := gzip.NewReader(file)
	require.NoError(t, err)
	lines := bufio.NewScanner(text)
	lines.Buffer(nil, 1<<20)
	var records []history.Record
	for lines.Scan() {
		var r history.Record
		require.NoError(t, json.Unmarshal(lines.Bytes(), &r))
		records = append(records, r)
	}
	require.NoError(t, lines.Err())
	return records
}

func checked(t *testing.T, records []history.Record) *Result {
	t.Helper()
	h, err := history.New(records...)
	require.NoError(t, err)
	return Run(h)
}

func TestRecordedCampaign(t *testing.T) {
	v := checked(t, recorded(t))
	assert.Empty(t, v.Violations)
	assert.Equal(t, []Promise{DeadProxy}, v.Unchecked(), "the verdict path was down too often")
}

// forgery changes one record of a real campaign. It returns records to add, and whether
// it changed this one.
type forgery struct {
	promise Promise
	forge   func(c *tampering, r *history.Record) (more []history.Record, done bool)
}

// tampering is the whole campaign, for forgeries.
type tampering struct {
	*checker
	records []history.Record
}

// TestTamperedCampaign: the checker finds each promise broken by the smallest change of a
// real history.
func TestTamperedCampaign(t *testing.T) {
	forgeries := map[string]forgery{
		"a fencing token is used again":      {Fencing, tokenAgain},
		"a fencing token goes back":          {Fencing, tokenBack},
		"a lease is forgotten":               {LeaseKept, forgotten},
		"a lease ends early":                 {LeaseKept, early},
		"a lease too many":                   {Capacity, tooMany},
		"a release ends another lease":       {Successor, wrongRelease},
		"a second VM":                        {NotDoubled, secondVM},
		"a VM outlives its Proxy":            {NoOrphans, orphanVM},
		"a VM is deleted for nothing":        {NotDeleted, lostVM},
		"a finalizer goes early":             {Finalizers, earlyFinalizer},
		"a Proxy never goes":                 {NotStuck, neverGone},
		"a Proxy keeps its old hash":         {Converged, oldHash},
		"a dead proxy is Ready":              {StatusTrue, readyAndDead},
		"a proxy that works is Unhealthy":    {NoFlips, flip},
		"a dead proxy is leased":             {DeadProxy, deadLease},
		"a refusal does not say when to ask": {Refusals, noRetryAfter},
		"descriptors leak":                   {Resources, leak},
	}
	covered := map[Promise]bool{}
	for name, x := range forgeries {
		covered[x.promise] = true
		t.Run(name, func(t *testing.T) {
			records := recorded(t)
			h, err := history.New(recorded(t)...)
			require.NoError(t, err)
			scene := &tampering{checker: newChecker(h), records: records}
			done := false
			for i := 0; i < len(records) && !done; i++ {
				var more []history.Record
				more, done = x.forge(scene, &records[i])
				records = slices.Insert(records, i+1, more...)
			}
			require.True(t, done, "the campaign gives no occasion")
			v := checked(t, records)
			assert.True(t, slices.ContainsFunc(v.Violations, func(f Violation) bool { return f.Promise == x.promise }), "%v", v.Violations)
		})
	}
	for _, p := range Promises() {
		assert.True(t, covered[p], "no case breaks %q", p)
	}
}

func (c *tampering) lease(r *history.Record) *leaseTimeline {
	if r.Call == nil || r.Call.LeaseID == "" {
		return nil
	}
	for _, l := range c.leases {
		if l.domain == r.Call.Domain && l.id == r.Call.LeaseID {
			return l
		}
	}
	return nil
}

func tokenAgain(c *tampering, r *history.Record) ([]history.Record, bool) {
	if l := c.lease(r); l == nil || !granted(r.Call) {
		return nil, false
	}
	for _, other := range c.leases {
		if other.domain == r.Call.Domain && other.id != r.Call.LeaseID {
			r.Call.FencingToken = other.grant.FencingToken
			return nil, true
		}
	}
	return nil, false
}

func tokenBack(c *tampering, r *history.Record) ([]history.Record, bool) {
	if c.lease(r) == nil || !granted(r.Call) || r.Call.Asked < s(60) {
		return nil, false
	}
	r.Call.FencingToken -= 1_000_000_000
	return nil, true
}

func forgotten(c *tampering, r *history.Record) ([]history.Record, bool) {
	l := c.lease(r)
	if l == nil || r.Call.Kind != history.Get || r.Call.Status != 200 {
		return nil, false
	}
	r.Call.Status, r.Call.Code, r.Call.Detail, r.Call.ExpiresAt = 404, "unknown_lease", "there is none", 0
	return nil, true
}

// early has a lease expire by 2 s too soon.
func early(c *tampering, r *history.Record) ([]history.Record, bool) {
	l := c.lease(r)
	if l == nil || r.Call.Kind != history.Renew || r.Call.Status != 200 || r.Call.Answered > l.grant.ExpiresAt-s(2) {
		return nil, false
	}
	r.Call.Status, r.Call.Code, r.Call.Reason, r.Call.Detail, r.Call.ExpiresAt = 410, "lease_gone", "expired", "it is over", 0
	return nil, true
}

// tooMany grants one more at the moment at which a proxy got full.
func tooMany(c *tampering, r *history.Record) ([]history.Record, bool) {
	l := c.lease(r)
	if l == nil || r.Call != nil && !granted(r.Call) || l.grant.Asked != r.Call.Asked || l.heldUntil() < l.grant.Answered+s(1) {
		return nil, false
	}
	most, known := c.limit(l)
	if !known || most != 1 {
		return nil, false
	}
	if c.moved(l, window{l.earliest, l.grant.Answered + s(1)}) {
		return nil, false
	}
	second := *r.Call
	second.LeaseID, second.Key, second.FencingToken = second.LeaseID+"2", "", second.FencingToken+1_000_000
	second.At, second.Asked, second.Answered = second.At+s(0.3), second.Asked+s(0.3), second.Answered+s(0.3)
	return []history.Record{{Call: &second}}, l.grant.Answered < second.Asked
}

// wrongRelease releases an expired lease just before a call about its successor, which
// is unknown then.
func wrongRelease(c *tampering, r *history.Record) ([]history.Record, bool) {
	l := c.lease(r)
	if l == nil || r.Call.Kind != history.Get && r.Call.Kind != history.Renew || r.Call.Status != 200 {
		return nil, false
	}
	for _, old := range c.predecessors(l) {
		if old.expires < l.earliest && r.Call.Asked > l.grant.Answered+s(0.2) {
			end := history.Call{
				Stamp: history.Stamp{At: r.Call.Asked - s(0.1)}, Domain: l.domain, Kind: history.Release, Status: 204,
				Asked: r.Call.Asked - s(0.1), Answered: r.Call.Asked - s(0.05), LeaseID: old.id,
			}
			r.Call.Status, r.Call.Code, r.Call.Detail, r.Call.ExpiresAt = 404, "unknown_lease", "there is none", 0
			return []history.Record{{Call: &end}}, true
		}
	}
	return nil, false
}

func secondVM(_ *tampering, r *history.Record) ([]history.Record, bool) {
	if r.VMs == nil || len(r.VMs.VMs) == 0 {
		return nil, false
	}
	twin := r.VMs.VMs[0]
	twin.ID, twin.State = "999", "PROVISIONING"
	r.VMs.VMs = append(r.VMs.VMs, twin)
	return nil, true
}

// orphanVM leaves the VM of a deleted Proxy in all tables after the last change.
func orphanVM(c *tampering, r *history.Record) ([]history.Record, bool) {
	if r.VMs == nil || r.VMs.At != c.VMs[len(c.VMs)-1].At {
		return nil, false
	}
	for _, v := range c.vms {
		if p := c.proxies[v.UID]; p != nil && p.gone != nil {
			r.VMs.VMs = append(r.VMs.VMs, v.VM)
			return nil, true
		}
	}
	return nil, false
}

// lostVM replaces a VM that lived to the end.
func lostVM(c *tampering, r *history.Record) ([]history.Record, bool) {
	if r.VMs == nil || r.VMs.At != c.VMs[len(c.VMs)-1].At {
		return nil, false
	}
	for i := range r.VMs.VMs {
		v := c.vms[r.VMs.VMs[i].ID]
		if p := c.proxies[v.UID]; v.ran != nil && v.ran.At < r.VMs.At && !c.terminated(p, never) &&
			!c.wantedOther(p, instance{"VM", v.ID, v.UID, v.SpecHash, v.first.Asked, r.VMs.At, nil}) {
			r.VMs.VMs[i].ID = "999"
			return nil, true
		}
	}
	return nil, false
}

// earlyFinalizer has a Proxy go before its VM.
func earlyFinalizer(c *tampering, r *history.Record) ([]history.Record, bool) {
	o := r.Object
	if o == nil || o.Kind != "Proxy" || o.Change != history.Deleted {
		return nil, false
	}
	for _, v := range c.vms {
		if v.UID == o.UID && v.after != nil {
			o.At = v.after.Confirmed - s(0.5)
			return nil, true
		}
	}
	return nil, false
}

func neverGone(_ *tampering, r *history.Record) ([]history.Record, bool) {
	o := r.Object
	if o == nil || o.Kind != "Proxy" || o.Change != history.Deleted {
		return nil, false
	}
	o.Change, o.Deleting = history.Modified, true
	return nil, true
}

func oldHash(c *tampering, r *history.Record) ([]history.Record, bool) {
	o := r.Object
	if o == nil || o.Kind != "Proxy" || o.SpecHash == "" || c.proxies[o.UID].last().ResourceVersion != o.ResourceVersion || isGone(*o) {
		return nil, false
	}
	o.SpecHash = "v1-" + strings.Repeat("0", 40)
	return nil, true
}

func readyAndDead(c *tampering, r *history.Record) ([]history.Record, bool) {
	o := r.Object
	if o == nil || o.Kind != "Proxy" || o.Phase != "Ready" || c.proxies[o.UID].last().ResourceVersion != o.ResourceVersion {
		return nil, false
	}
	return []history.Record{{Truth: &history.Truth{
		Stamp: history.Stamp{At: max(o.At, c.ending()-s(60))}, Proxy: o.Name, UID: o.UID, Endpoint: o.Endpoint, State: history.Dead,
	}}}, true
}

// flip makes a proxy Unhealthy that works.
func flip(c *tampering, r *history.Record) ([]history.Record, bool) {
	o := r.Object
	if o == nil || o.Kind != "Proxy" || o.Phase != "Ready" || o.Deleting {
		return nil, false
	}
	bad := *o
	bad.At, bad.Phase, bad.Conditions = o.At+s(10), "Unhealthy", slices.Clone(o.Conditions)
	basis := basisOf(&bad, c.delays())
	if at := c.proxies[o.UID].at(bad.At); at == nil || at.ResourceVersion != o.ResourceVersion ||
		!c.groundTruthOf(o).aliveDuring(basis) || c.hostDown(o, basis) {
		return nil, false
	}
	for i := range bad.Conditions {
		if bad.Conditions[i].Type == "Healthy" {
			bad.Conditions[i].Status, bad.Conditions[i].Reason = "False", "TLSTimeout"
		}
	}
	return []history.Record{{Object: &bad}}, true
}

// deadLease has a proxy be dead for half a minute before it is leased.
func deadLease(c *tampering, r *history.Record) ([]history.Record, bool) {
	l := c.lease(r)
	if l == nil || !granted(r.Call) || r.Call.Asked < s(150) {
		return nil, false
	}
	o := c.instanceOf(l)
	exempt := c.verdictPath()
	if o == nil || o.At > l.earliest-s(60) || within(exempt, window{l.earliest, l.grant.Answered}, staleGrace) {
		return nil, false
	}
	truth := func(at time.Duration, state history.State) history.Record {
		return history.Record{Truth: &history.Truth{Stamp: history.Stamp{At: at}, Proxy: o.Name, UID: o.UID, Endpoint: o.Endpoint, State: state}}
	}
	return []history.Record{truth(l.earliest-s(30), history.Hanging), truth(l.grant.Answered+s(1), history.Alive)}, true
}

func noRetryAfter(_ *tampering, r *history.Record) ([]history.Record, bool) {
	if r.Call == nil || r.Call.Status != 503 {
		return nil, false
	}
	r.Call.RetryAfter = ""
	return nil, true
}

// leak adds descriptors to all that is measured in the end.
func leak(c *tampering, r *history.Record) ([]history.Record, bool) {
	if r.Metrics == nil || r.Metrics.At < c.stages[history.StageSettled].from {
		return nil, false
	}
	for _, x := range c.records {
		if x.Metrics != nil && x.Metrics.Process == r.Metrics.Process && x.Metrics.At >= r.Metrics.At {
			x.Metrics.FDs += 1_000
		}
	}
	return nil, true
}
