package reconcile

import (
	"fmt"
	"time"

	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/api/adapter"
)

// Timing that follows from how clouds behave, and is therefore not configurable.
const (
	confirmGap  = 2 * time.Second  // the least time between two observations that count as independent
	lateArrival = 45 * time.Second // how long after an insert without a response the instance may still appear. Absences count only after it
	// operationTimeout is how long an operation is polled. Clouds keep them for a
	// limited time; after that the instance itself is read.
	operationTimeout = 20 * time.Minute
	// maxListLag is how far lists may lag behind. For so long after its start the
	// reconciler does not treat an unlisted instance as absent: its predecessor may
	// have just inserted it.
	maxListLag = 2 * time.Minute
	// recreateFirst and recreateMost bound the backoff of an instance that is lost
	// repeatedly; an instance that lives for recreateQuiet resets it.
	recreateFirst = time.Minute
	recreateMost  = 30 * time.Minute
	recreateQuiet = 30 * time.Minute
)

// stepKind is the kind of the next step for a Proxy.
type stepKind int

const (
	stepWait stepKind = iota // does nothing until a given time, or until a wakeup
	// stepPoll reads an operation.
	stepPoll
	// stepCheck reads an instance.
	stepCheck
	// stepInsert sends an insert or retries it.
	stepInsert
	// stepRemove reads an instance and sends a delete.
	stepRemove
)

// step is the next step for one Proxy.
type step struct {
	kind    stepKind
	place   *place
	call    *call     // to poll
	zone    string    // of a new insert, which has no place yet
	until   time.Time // when stepWait ends; zero means on a wakeup
	failure *failure  // that causes the wait; nil keeps the previous one
}

// view is what a decision depends on besides its Proxy.
type view struct {
	now         time.Time
	gap         error     // the part of the account that was never listed, nil for none
	pausedUntil time.Time // holds back all mutations
	gates       gates
	occupied    int // counts the instances that exist or may exist; nextList is when the count is next refreshed
	nextList    time.Time
}

func wait(until time.Time) step { return step{kind: stepWait, until: until} }

func waitFor(class adapter.FailureClass, until time.Time, message string) step {
	return step{kind: stepWait, until: until, failure: &failure{class: class, until: until, message: message}}
}

// at returns s if it is due, and otherwise the wait for it.
func at(due time.Time, v *view, s step) step {
	if v.now.Before(due) {
		return wait(due)
	}
	return s
}

// decide returns the next step for px. It is pure.
func decide(px *proxy, v *view) step {
	if px.busy {
		return wait(time.Time{})
	}
	result := wait(time.Time{})
	for _, p := range px.sortedPlaces() {
		for _, s := range decidePlace(px, p, v) {
			if s.kind != stepWait {
				return s
			}
			result.until = sooner(result.until, s.until)
		}
	}
	if len(px.places) > 0 || px.deleted {
		return result
	}
	return decideInsert(px, v)
}

// decidePlace returns the possible steps at one place, the most urgent first.
func decidePlace(px *proxy, p *place, v *view) []step {
	var out []step
	hold := later(px.notBefore, v.pausedUntil)
	if p.insert != nil && !p.insert.accepted() && !px.deleted {
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
		if px.insertInFlight(p) && !px.deleted {
			return out // the inserted instance will appear; its predecessor will not
		}
		return append(out, at(p.checkAt, v, step{kind: stepCheck, place: p}))
	}
	if px.mustDelete(p) && !p.vm.Leaving {
		out = append(out, at(hold, v, step{kind: stepRemove, place: p}))
	}
	return out
}

// decideInsert returns the next step for a Proxy that has no instance and needs
// one.
func decideInsert(px *proxy, v *view) step {
	if v.gap != nil || px.latched() {
		return wait(time.Time{})
	}
	if due := later(px.notBefore, v.pausedUntil); v.now.Before(due) {
		return wait(due) // before the limits below: the last attempt's failure stays known
	}
	if most := px.cloud.MaxInstances(); most > 0 && v.occupied >= most {
		return waitFor(adapter.FailureQuotaExceeded, v.nextList,
			fmt.Sprintf("the account has %d instances and maxInstances of the provider config is %d", v.occupied, most))
	}
	if due := px.recreateAt(); v.now.Before(due) {
		return waitFor(adapter.FailureTransient, due,
			fmt.Sprintf("the instance was lost %d times in a row soon after it was made; find out what terminates it", px.losses+1))
	}
	zone, short := v.gates.choose(px.uid, zones(px.req), px.req.Placement.MachineType, v.now)
	if short != nil {
		return step{kind: stepWait, until: short.until, failure: short}
	}
	return step{kind: stepInsert, zone: zone}
}

// recreateAt is when a lost instance may be made again: at once the first time,
// with backoff when it is lost soon after.
func (px *proxy) recreateAt() time.Time {
	if px.losses == 0 || px.replaced {
		return time.Time{}
	}
	return px.madeAt.Add(backoff(recreateFirst, recreateMost, px.losses))
}

// zones in the order in which they are tried. An empty zone reaches the provider,
// whose error names the missing field.
func zones(req adapter.PutRequest) []string {
	out := []string{req.Placement.Zone}
	for _, z := range req.Placement.FallbackZones {
		out = append(out, string(z))
	}
	return out
}

// sooner returns the earlier time; zero means never.
func sooner(a, b time.Time) time.Time {
	if a.IsZero() || !b.IsZero() && b.Before(a) {
		return b
	}
	return a
}

// later returns the later time.
func later(a, b time.Time) time.Time {
	if b.After(a) {
		return b
	}
	return a
}
