package reconcile

import (
	"maps"
	"slices"
	"time"

	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/api/adapter"
	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/cloud/provider"
)

// proxy is the desired state of one Proxy, and the places where an instance of it
// is or may be.
type proxy struct {
	uid, name string
	provider  string
	cloud     provider.Cloud

	deleted                  bool // no instance is desired. req is the desired one otherwise
	req                      adapter.PutRequest
	requestedAt, lastRequest time.Time    // the first request for this desired state, lastRequest the last
	hint                     provider.Ref // the last known location from the last DELETE
	confirmedAbsent          bool         // after requestedAt, no instance was observed anywhere
	lagRuledOut              bool         // no instance exists that lists do not contain yet

	places map[provider.Ref]*place
	busy   bool // a call is in flight, and no step is decided until it ends

	failure   *failure
	notBefore time.Time        // holds back the next mutation after failures in a row
	attempts  map[schedule]int // those failures, by how their retries back off

	madeAt   time.Time // when the last instance was made; losses counts how often in a row it was lost soon after
	losses   int
	replaced bool // the last instance was deleted because of PutRequest.Replace
}

// place is where an instance of a Proxy is or may be.
type place struct {
	provider.Ref
	vm    *provider.Instance // as last observed, nil when none was
	since time.Time          // the last change or presence. Observations that began earlier are stale
	stale bool               // vm is outdated and must be read again
	// absences counts observations in a row that found nothing; the last one began
	// at absentAt, and absentByRead is set when one of them was a single read.
	absences       int
	absentAt       time.Time
	absentByRead   bool
	lateUntil      time.Time // until when an insert without a response may take effect
	checkAt        time.Time // when to read it next; checks counts failed reads
	checks         int
	unread         *failure // why the last read of it, or poll of its operation, failed; nil after a success
	insert, remove *call    // insert and remove are calls whose outcome is not known yet
}

// call is an insert or delete from its first request to its outcome.
type call struct {
	requestID  string
	request    provider.InsertRequest // of an insert, for retries
	sent, last time.Time              // sent and last are the times of the first and last request, sends their number
	sends      int
	op         provider.Operation // of an accepted call; its name is empty before
	pollAt     time.Time
	polls      int // counts successful ones, pollFailures failed ones in a row

	pollFailures int
}

// schedule bounds the backoff of a kind of failure.
type schedule struct{ first, most time.Duration }

func (c *call) accepted() bool { return c != nil && c.op.Name != "" }

func (px *proxy) sortedPlaces() []*place {
	if len(px.places) == 0 {
		return nil
	}
	return slices.SortedFunc(maps.Values(px.places), func(a, b *place) int { return compareRefs(a.Ref, b.Ref) })
}

// at returns the place at ref and adds it when there is none.
func (px *proxy) at(ref provider.Ref) *place {
	p := px.places[ref]
	if p == nil {
		p = &place{Ref: ref}
		px.places[ref] = p
	}
	return p
}

// survivor is the place whose instance serves the Proxy, nil for none. Of several
// instances the oldest usable one survives: the Proxy's status refers to it.
func (px *proxy) survivor() *place {
	var best *place
	for _, p := range px.sortedPlaces() {
		if p.vm != nil && (best == nil || px.better(p.vm, best.vm)) {
			best = p
		}
	}
	return best
}

func (px *proxy) better(a, b *provider.Instance) bool {
	if x, y := px.usable(a), px.usable(b); x != y {
		return x
	}
	if !a.CreatedAt.Equal(b.CreatedAt) {
		return a.CreatedAt.Before(b.CreatedAt)
	}
	return a.ID < b.ID
}

// usable reports whether the instance may serve the Proxy. Its hash does not
// matter: the hook decides about replacements.
func (px *proxy) usable(vm *provider.Instance) bool {
	return !px.deleted && vm.State != adapter.StateStopped && (px.req.Replace == "" || vm.ID != px.req.Replace)
}

// mustDelete reports whether the instance at p has to be deleted.
func (px *proxy) mustDelete(p *place) bool {
	return px.deleted || p.vm != nil && (!px.usable(p.vm) || px.survivor() != p)
}

// insertInFlight reports whether an insert may still make an instance at p: it was
// accepted and its instance was not observed yet, or its retry is pending.
func (px *proxy) insertInFlight(p *place) bool {
	switch {
	case p.insert == nil:
		return false
	case p.insert.accepted():
		return p.vm == nil || p.vm.ID != p.insert.op.TargetID
	}
	return !px.deleted
}

// verifyZones adds a place, to be read at once, in every zone of the Proxy. A
// predecessor that was killed right after an insert may have left an instance that
// lists do not contain yet. With a single zone this is not needed: an insert of a
// taken name fails.
func (px *proxy) verifyZones(listedAt time.Time) {
	px.lagRuledOut = true // by these reads
	for _, zone := range zones(px.req) {
		p := px.at(provider.Ref{Zone: zone, Name: px.name})
		p.stale = true
		p.absences, p.absentAt = 1, listedAt // the list does not contain it
		p.checkAt = listedAt.Add(confirmGap) // an earlier read would not count
	}
}

// logKeys are the log attributes of a Proxy and one of its places.
func (px *proxy) logKeys(p *place, more ...any) []any {
	keys := []any{"provider", px.provider, "instance", px.name, "zone", p.Zone, "uid", px.uid}
	if px.req.Proxy != "" {
		keys = append(keys, "proxy", px.req.Proxy, "namespace", px.req.Namespace)
	}
	return append(keys, more...)
}

// failure is why a Proxy's desired state is not reached.
type failure struct {
	class   adapter.FailureClass
	message string
	until   time.Time // when the next attempt is due; zero for none
	latched bool      // it ends only with another hash or generation
	// conflict: an insert found the name taken. A read that finds the Proxy's own
	// instance disproves it.
	conflict bool
}

func (px *proxy) latched() bool { return px.failure != nil && px.failure.latched }

// shownFailure is why the desired state is not reached: what the cloud said about the
// spec or the project, and why the instance cannot be read. A read that fails never
// replaces a refusal, which lasts longer and which a person has to end.
func (px *proxy) shownFailure() *failure {
	f := px.failure
	for _, p := range px.sortedPlaces() {
		switch {
		case p.unread == nil:
		case f == nil || f.class == adapter.FailureTransient:
			f = p.unread
		default:
			both := *f
			both.message += "; its instance cannot be read: " + p.unread.message
			return &both
		}
	}
	return f
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
