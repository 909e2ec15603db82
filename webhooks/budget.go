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
// several webhooks processes each has a budget of its own.
type budget struct {
	limit Limit
	clock clock.PassiveClock

	mu         sync.Mutex
	fleets     map[string]map[types.UID]*budgetEntry
	nextExpiry time.Time
}

// budgetEntry is one Proxy that was seen.
type budgetEntry struct {
	lastSeen time.Time
	// underWay: a place is held, from the permission until the Proxy is Ready
	// and its status says so.
	underWay bool
	// replaced is the id of the instance that the permission was about, empty
	// for a replacement that an earlier process began.
	replaced string
}

// budgetState is the budget of one provider at one moment.
type budgetState struct {
	// seen Proxies, replacements underWay among them, and the limit of those.
	seen, underWay, limit int
}

// newBudget returns an empty budget.
func newBudget(limit Limit, clk clock.PassiveClock) *budget {
	return &budget{limit: limit, clock: clk, fleets: map[string]map[types.UID]*budgetEntry{}}
}

// see notes that the Proxy exists, and returns whether it holds a place.
// underWay is what its status says: after a restart this is how replacements
// that an earlier process began keep their places.
func (b *budget) see(provider string, uid types.UID, underWay bool) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.expire()
	e := b.entry(provider, uid)
	e.lastSeen = b.clock.Now()
	e.underWay = e.underWay || underWay
	return e.underWay
}

// allow reports whether the instance may be replaced now, and holds a place for
// it if so. A Proxy that holds a place already is allowed again: its spec
// changed once more, or the first answer was lost.
func (b *budget) allow(provider string, uid types.UID, instanceID string) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.expire()
	e := b.entry(provider, uid)
	e.lastSeen = b.clock.Now()
	if !e.underWay {
		state := b.state(provider)
		if state.underWay >= state.limit {
			return false
		}
		e.underWay = true
	}
	e.replaced = instanceID
	return true
}

// settle gives the place of a Proxy back, whose instance is the one that the
// spec asks for: when it is Ready, or when it is the very instance that was to
// be replaced, so that the edit was taken back.
func (b *budget) settle(provider string, uid types.UID, instanceID string, ready bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	e := b.fleets[provider][uid]
	if e != nil && (ready || e.replaced != "" && e.replaced == instanceID) {
		e.underWay, e.replaced = false, ""
	}
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
		if e.underWay {
			s.underWay++
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
