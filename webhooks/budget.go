package webhooks

import (
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
)

// seenLately is how long a Proxy counts as part of the fleet after its last
// sync: three of the CompositeController's resync periods.
const seenLately = 15 * time.Minute

// expiryInterval is how often old entries are looked for.
const expiryInterval = time.Minute

// budget bounds how many running instances are replaced at once because their
// specs changed, per provider. It counts the Proxies that this process has seen
// lately, so that it is small just after a start and never too large; with
// several webhooks processes each has a budget of its own, and a restart forgets
// what has failed.
//
// A replacement holds a place until its Proxy is Ready again. One that is not
// within the deadline has failed, and holds its place on: when probes fail
// everywhere, or the new spec is no good, the limit is about all that is lost.
// But one broken Proxy must not stop all others. So, with all places taken and
// none but failed ones among them, one further replacement at a time is allowed
// as a trial, while any Proxy of the provider is Ready, which shows that it is
// not the probes: of an instance that is not Ready always, since nobody loses it,
// and of a Ready one as long as no more than the limit were Ready of those that
// have failed. The first replacement that ends Ready shows that replacing works,
// and gives the places of the failed ones back.
type budget struct {
	limit    Limit
	deadline time.Duration
	clock    clock.PassiveClock

	mu         sync.Mutex
	fleets     map[string]map[types.UID]*budgetEntry
	nextExpiry time.Time
}

// budgetEntry is one Proxy that was seen.
type budgetEntry struct {
	lastSeen time.Time
	// ready: it was Ready then.
	ready bool
	// underWay: a place is held, from the permission until the Proxy is Ready
	// and its status says so.
	underWay bool
	// since is when the place was taken, or asked for once more.
	since time.Time
	// wasReady: the instance was Ready when it was allowed to go.
	wasReady bool
	// excused: the replacement has failed and its place was given back.
	excused bool
	// replaced is the id of the instance that the permission was about, empty
	// for a replacement that an earlier process began.
	replaced string
}

// budgetState is the budget of one provider at one moment.
type budgetState struct {
	// seen Proxies, places held by replacements underWay, of which failed ones,
	// of which lost ones that were Ready before, and the limit of the places.
	seen, underWay, failed, lost, limit int
	// ready: one or more of those seen are.
	ready bool
}

// allows reports whether another replacement may begin.
func (s budgetState) allows(ready bool) bool {
	trial := s.underWay == s.failed && s.ready && (!ready || s.lost <= s.limit)
	return s.underWay < s.limit || trial
}

// newBudget returns an empty budget. deadline is how long a replacement may take
// until its Proxy is Ready.
func newBudget(limit Limit, deadline time.Duration, clk clock.PassiveClock) *budget {
	return &budget{limit: limit, deadline: deadline, clock: clk, fleets: map[string]map[types.UID]*budgetEntry{}}
}

// see notes that the Proxy exists, Ready or not, and returns whether it holds a
// place. underWay is what its status says: after a restart this is how replacements
// that an earlier process began keep their places.
func (b *budget) see(provider string, uid types.UID, underWay, ready bool) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.expire()
	e := b.entry(provider, uid)
	e.lastSeen, e.ready = b.clock.Now(), ready
	if underWay && !e.underWay && !e.excused {
		e.underWay, e.since = true, e.lastSeen
	}
	return e.underWay
}

// allow reports whether the instance of a Proxy that was just seen may be
// replaced now, and holds a place for it if so. A Proxy that holds a place already
// is allowed again: its spec changed once more, or the first answer was lost.
func (b *budget) allow(provider string, uid types.UID, instanceID string) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.expire()
	e := b.entry(provider, uid)
	now := b.clock.Now()
	e.lastSeen = now
	if !e.underWay {
		if !b.state(provider).allows(e.ready) {
			return false
		}
		*e = budgetEntry{lastSeen: now, ready: e.ready, underWay: true, since: now, wasReady: e.ready}
	}
	if e.replaced != instanceID {
		e.replaced, e.since = instanceID, now
	}
	return true
}

// settle gives the place of a Proxy back, whose instance is the one that the
// spec asks for: when it is Ready, or when it is the very instance that was to
// be replaced, so that the edit was taken back.
func (b *budget) settle(provider string, uid types.UID, instanceID string, ready bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	e := b.fleets[provider][uid]
	if e == nil || !e.underWay && !e.excused {
		return
	}
	back := e.replaced != "" && e.replaced == instanceID
	if ready && !back {
		b.excuse(provider)
	}
	if ready || back {
		*e = budgetEntry{lastSeen: e.lastSeen, ready: e.ready}
	}
}

// excuse gives the places of all failed replacements back.
func (b *budget) excuse(provider string) {
	for _, e := range b.fleets[provider] {
		if b.failed(e) {
			e.underWay, e.excused = false, true
		}
	}
}

// failed reports whether the replacement should have ended by now.
func (b *budget) failed(e *budgetEntry) bool {
	return e.underWay && b.clock.Since(e.since) > b.deadline
}

// forget drops a Proxy that is being deleted.
func (b *budget) forget(provider string, uid types.UID) {
	b.mu.Lock()
	defer b.mu.Unlock()
	delete(b.fleets[provider], uid)
}

// states returns the budgets of all providers of which Proxies were seen.
func (b *budget) states() map[string]budgetState {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.expire()
	out := map[string]budgetState{}
	for provider := range b.fleets {
		out[provider] = b.state(provider)
	}
	return out
}

func (b *budget) entry(provider string, uid types.UID) *budgetEntry {
	fleet := b.fleets[provider]
	if fleet == nil {
		fleet = map[types.UID]*budgetEntry{}
		b.fleets[provider] = fleet
	}
	if fleet[uid] == nil {
		fleet[uid] = &budgetEntry{}
	}
	return fleet[uid]
}

func (b *budget) state(provider string) budgetState {
	s := budgetState{seen: len(b.fleets[provider])}
	s.limit = b.limit.of(s.seen)
	for _, e := range b.fleets[provider] {
		s.ready = s.ready || e.ready
		if e.underWay {
			s.underWay++
		}
		if b.failed(e) {
			s.failed++
			if e.wasReady {
				s.lost++
			}
		}
	}
	return s
}

// expire drops what was not seen for a while. It looks at everything, and so
// runs once a minute.
func (b *budget) expire() {
	now := b.clock.Now()
	if now.Before(b.nextExpiry) {
		return
	}
	b.nextExpiry = now.Add(expiryInterval)
	oldest := now.Add(-seenLately)
	for provider, fleet := range b.fleets {
		for uid, e := range fleet {
			if e.lastSeen.Before(oldest) {
				delete(fleet, uid)
			}
		}
		if len(fleet) == 0 {
			delete(b.fleets, provider)
		}
	}
}
