package reconcile

import (
	"cmp"
	"maps"
	"slices"
	"time"

	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/api/adapter"
	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/cloud/provider"
)

// proxy is one Proxy: what should be, and the places where an instance of it is
// or may be.
type proxy struct {
	uid, name string
	provider  string
	cloud     provider.Cloud

	// gone: no instance should be.
	deleted bool
	// req is what should be otherwise.
	req adapter.PutRequest
	// asked is when a caller first asked for this end, renewed when last.
	asked, renewed time.Time
	// hint is where the last DELETE said that it was, which is then looked at.
	hint provider.Ref
	// absent: after it was asked for, nothing was observed anywhere.
	confirmedAbsent bool
	// sure: what this reconciler has seen of it leaves no room for an instance
	// that lists do not show yet.
	lagRuledOut bool

	places map[provider.Ref]*place
	// busy: a call is under way, and nothing is decided meanwhile.
	busy bool

	failure *failure
	// notBefore holds back calls that change something.
	notBefore time.Time
	attempts  int

	// made is when the last instance was made, and streak how often in a row
	// it was made again soon after.
	madeAt time.Time
	losses int
	// replaced: the last instance went because the caller asked for it.
	replaced bool
}

// place is where an instance of an proxy is or may be.
type place struct {
	provider.Ref
	// vm as last seen, nil when nothing was seen yet.
	vm *provider.Instance
	// since is the last change or sighting. Observations that began earlier
	// say nothing.
	since time.Time
	// stale: the sighting is outdated, look again before deciding.
	stale bool
	// absences is how many observations in a row found nothing, absentAt when
	// the last of them began. read: one of them was a read of this very place.
	absences int
	absentAt time.Time
	read     bool
	// settled is until when an insert without an answer may take effect.
	lateUntil time.Time
	// checkAt is when to look next, if there is reason to.
	checkAt time.Time
	checks  int
	// insert and remove are calls whose end is not known yet.
	insert, remove *call
}

// call is an insert or delete from its first sending to its end.
type call struct {
	requestID string
	// request to repeat, of inserts.
	request provider.InsertRequest
	// target is the id of the instance to delete, of deletes.
	target string
	// sent and last are when it was first and last sent, sends how often.
	sent, last time.Time
	sends      int
	// op follows an accepted call; its name is empty before.
	op     provider.Operation
	pollAt time.Time
	polls  int
}

func (c *call) accepted() bool { return c != nil && c.op.Name != "" }

func (e *proxy) sortedPlaces() []*place {
	if len(e.places) == 0 {
		return nil // most of the time there is one, or none
	}
	return slices.SortedFunc(maps.Values(e.places), func(a, b *place) int {
		return cmp.Or(cmp.Compare(a.Zone, b.Zone), cmp.Compare(a.Name, b.Name))
	})
}

// survivor is the place whose instance serves the Proxy, nil when there is none.
// Should there ever be several, the oldest that may stay is kept: it is the one
// that the Proxy's status names.
func (e *proxy) survivor() *place {
	var best *place
	for _, p := range e.sortedPlaces() {
		if p.vm != nil && (best == nil || e.better(p.vm, best.vm)) {
			best = p
		}
	}
	return best
}

func (e *proxy) better(a, b *provider.Instance) bool {
	if x, y := e.usable(a), e.usable(b); x != y {
		return x
	}
	if !a.CreatedAt.Equal(b.CreatedAt) {
		return a.CreatedAt.Before(b.CreatedAt)
	}
	return a.ID < b.ID
}

// fits reports whether the instance may serve the Proxy. Its hash does not
// matter: replacement is the caller's decision.
func (e *proxy) usable(vm *provider.Instance) bool {
	return !e.deleted && vm.State != adapter.StateStopped && (e.req.Replace == "" || vm.ID != e.req.Replace)
}

// mustDelete reports whether what is at p has to be deleted.
func (e *proxy) mustDelete(p *place) bool {
	return e.deleted || p.vm != nil && (!e.usable(p.vm) || e.survivor() != p)
}

// suspect makes every zone that an instance may have been put into a place, to be
// looked at once. An reconciler that has just begun may have a predecessor that was
// killed right after an insert, which lists do not show yet. With a single zone
// the name would be taken, which is as good as a look.
func (e *proxy) verifyZones(listedAt time.Time) {
	e.lagRuledOut = true // once that is done
	for _, zone := range zones(e.req) {
		p := e.at(provider.Ref{Zone: zone, Name: e.name})
		p.stale = true
		p.absences, p.absentAt = 1, listedAt // the list has not shown it
		p.checkAt = listedAt.Add(confirmGap) // an earlier look would not count
	}
}

// failure is why an proxy is not as it should be.
type failure struct {
	class   adapter.FailureClass
	message string
	// until is when the next attempt is due; zero when none is.
	until time.Time
	// latched failures end only with another hash or generation.
	latched bool
}

func (f *failure) answer(now time.Time) *adapter.Failure {
	if f == nil {
		return nil
	}
	out := &adapter.Failure{Class: f.class, Message: f.message}
	if !f.until.IsZero() {
		out.RetryAfterSeconds = max(1, int64(f.until.Sub(now).Round(time.Second)/time.Second))
	}
	return out
}
