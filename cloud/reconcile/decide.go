package reconcile

import (
	"fmt"
	"time"

	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/api/adapter"
)

// Paces of the reconciler. They are facts about clouds, not matters of taste, and
// so no flags.
const (
	// confirmGap is the least time between two observations that count as
	// independent.
	confirmGap = 2 * time.Second
	// settle is how long after an unanswered insert an absence counts: what was
	// sent may arrive late.
	settle = 45 * time.Second
	// operationTimeout is how long an operation is followed. Clouds keep them
	// for a limited time; after that only the instance itself tells.
	operationTimeout = 20 * time.Minute
	// maxListLag is how far behind lists may be. For so long an reconciler that
	// has just begun does not take what they do not show for absent: its
	// predecessor may have made it a moment ago.
	maxListLag = 2 * time.Minute
	// recreateFirst and recreateMost bound the back-off of an instance that is
	// lost again and again, recreateQuiet is how long it must live to be
	// forgiven.
	recreateFirst = time.Minute
	recreateMost  = 30 * time.Minute
	recreateQuiet = 30 * time.Minute
)

// stepKind is what to do next about an proxy.
type stepKind int

const (
	// stepWait does nothing before a moment, or before something changes.
	stepWait stepKind = iota
	// stepPoll reads an operation.
	stepPoll
	// stepCheck reads an instance.
	stepCheck
	// stepInsert sends an insert, for the first time or again.
	stepInsert
	// stepRemove reads an instance and sends a delete.
	stepRemove
)

// step is a decision about one proxy.
type step struct {
	kind  stepKind
	place *place
	// call to poll.
	call *call
	// zone of a new insert, which has no place yet.
	zone string
	// until is when to decide again, of stepWait; zero when only news can
	// change anything.
	until time.Time
	// failure that waiting is due to, nil to leave what is noted.
	failure *failure
}

// view is what a decision depends on besides its proxy.
type view struct {
	now time.Time
	// gap is what has not been heard of the account, nil when all has.
	gap error
	// paused holds back all calls that change something.
	pausedUntil time.Time
	gates       gates
	// occupied is how many instances exist or may exist, nextList when the
	// number is next checked.
	occupied int
	nextList time.Time
}

func wait(until time.Time) step { return step{kind: stepWait, until: until} }

// at returns s when its time has come, and otherwise to wait for it.
func at(due time.Time, v *view, s step) step {
	if v.now.Before(due) {
		return wait(due)
	}
	return s
}

// decide says what to do next about e. It changes nothing.
func decide(e *proxy, v *view) step {
	if e.busy {
		return wait(time.Time{})
	}
	result := wait(time.Time{})
	for _, p := range e.sortedPlaces() {
		for _, s := range decidePlace(e, p, v) {
			if s.kind != stepWait {
				return s
			}
			result.until = sooner(result.until, s.until)
		}
	}
	if len(e.places) > 0 || e.deleted {
		return result
	}
	return decideInsert(e, v)
}

// decidePlace returns what there is to do about one place, the most urgent
// first.
func decidePlace(e *proxy, p *place, v *view) []step {
	var out []step
	hold := later(e.notBefore, v.pausedUntil)
	if p.insert != nil && !p.insert.accepted() && !e.deleted {
		return []step{at(hold, v, step{kind: stepInsert, place: p})}
	}
	if p.insert.accepted() {
		out = append(out, at(p.insert.pollAt, v, step{kind: stepPoll, place: p, call: p.insert}))
	}
	if p.remove.accepted() {
		out = append(out, at(p.remove.pollAt, v, step{kind: stepPoll, place: p, call: p.remove}))
		if p.absences == 0 {
			return out
		}
	}
	if p.vm == nil || p.stale || p.absences > 0 {
		if e.insertInFlight(p) && !e.deleted {
			return out // it is on its way; what was there and is not will not come again
		}
		return append(out, at(p.checkAt, v, step{kind: stepCheck, place: p}))
	}
	if e.mustDelete(p) && !p.vm.Leaving {
		out = append(out, at(hold, v, step{kind: stepRemove, place: p}))
	}
	return out
}

// decideInsert decides about an proxy that should have an instance and has
// none.
func decideInsert(e *proxy, v *view) step {
	switch {
	case v.gap != nil:
		return wait(time.Time{})
	case e.failure != nil && e.failure.latched:
		return wait(time.Time{})
	}
	if most := e.cloud.MaxInstances(); most > 0 && v.occupied >= most {
		return step{kind: stepWait, until: v.nextList, failure: &failure{
			class: adapter.FailureQuotaExceeded, until: v.nextList,
			message: fmt.Sprintf("the account has %d instances and maxInstances of the provider config is %d", v.occupied, most),
		}}
	}
	if due := e.recreateAt(); v.now.Before(due) {
		return step{kind: stepWait, until: due, failure: &failure{
			class: adapter.FailureTransient, until: due,
			message: fmt.Sprintf("the instance was lost %d times in a row soon after it was made; look for what ends it", e.losses+1),
		}}
	}
	if due := later(e.notBefore, v.pausedUntil); v.now.Before(due) {
		return wait(due)
	}
	c := v.gates.choose(e.uid, zones(e.req), e.req.Placement.MachineType, v.now)
	if c.failure != nil {
		return step{kind: stepWait, until: c.until, failure: c.failure}
	}
	return step{kind: stepInsert, zone: c.zone}
}

// recreateAt is when an instance that was lost may be made again: at once the
// first time, later each time that it is lost soon.
func (e *proxy) recreateAt() time.Time {
	if e.losses == 0 || e.replaced {
		return time.Time{}
	}
	return e.madeAt.Add(backoff(recreateFirst, recreateMost, e.losses))
}

// zones in the order in which they are tried. Without any the provider says
// what is missing.
func zones(req adapter.PutRequest) []string {
	out := []string{req.Placement.Zone}
	for _, z := range req.Placement.FallbackZones {
		out = append(out, string(z))
	}
	return out
}

// sooner returns the earlier of two moments; zero means never.
func sooner(a, b time.Time) time.Time {
	if a.IsZero() || !b.IsZero() && b.Before(a) {
		return b
	}
	return a
}

// later returns the later of two moments.
func later(a, b time.Time) time.Time {
	if b.After(a) {
		return b
	}
	return a
}
