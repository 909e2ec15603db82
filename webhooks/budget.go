package webhooks

import (
	"fmt"
	"maps"
	"strconv"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/clock"

	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/api/v1alpha1"
	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/webhooks/proxy"
)

// ParseLimit parses --max-replacing: 1% to 100%, or a number of at least 1.
func ParseLimit(s string) (intstr.IntOrString, error) {
	limit := intstr.FromString(s)
	if number, err := strconv.ParseInt(s, 10, 32); err == nil { // intstr.Parse wraps around above int32
		limit = intstr.FromInt32(int32(number))
	}
	n, err := intstr.GetScaledValueFromIntOrPercent(&limit, 100, false)
	if err != nil || n < 1 || limit.Type == intstr.String && n > 100 {
		return intstr.IntOrString{}, fmt.Errorf("%q is neither a percentage from 1%% to 100%% nor a number from 1 on", s)
	}
	return limit, nil
}

// limitOf is the limit for a fleet of that size, rounded down and at least 1.
func limitOf(limit intstr.IntOrString, fleet int) int {
	n, _ := intstr.GetScaledValueFromIntOrPercent(&limit, fleet, false)
	return max(1, n)
}

// seenLately is how long a Proxy counts as part of the fleet after its last
// sync: three of the CompositeController's resync periods.
const seenLately = 15 * time.Minute

// expiryInterval is the period in which expired Proxies are dropped.
const expiryInterval = time.Minute

// budget bounds voluntary replacements under way, per provider, by the number of
// Proxies seen lately: just after a start it is small, and never too large.
// Several webhooks processes have separate budgets. A restart loses the record of
// failed replacements.
//
// A replacement counts until its Proxy is Ready again. One that is not Ready
// within the deadline has failed and counts on: when all probes fail, or the new
// spec is bad, the fleet loses about the limit and no more. But one broken Proxy
// must not stop all others. So when the budget is exhausted by failed replacements
// alone, one more replacement at a time is permitted as a trial. A trial needs a
// Ready Proxy of the provider, which shows that probes work. The trial of an
// instance that is not Ready is always permitted, since it loses nothing. The
// trial of a Ready one is permitted while at most the limit of the failed ones
// were Ready before. The first replacement that ends Ready shows that replacing
// works: failed ones no longer count.
type budget struct {
	limit    intstr.IntOrString
	deadline time.Duration // for a replacement to become Ready
	clock    clock.PassiveClock

	mu         sync.Mutex
	fleets     map[string]map[types.UID]*member
	nextExpiry time.Time
}

// member is one Proxy that was seen.
type member struct {
	lastSeen time.Time
	ready    bool // then
	// underWay: its replacement counts, from the permission until the stored status
	// shows the Proxy as Ready.
	underWay   bool
	since      time.Time // the last permission
	wasReady   bool      // at the permission
	discounted bool      // the replacement has failed and no longer counts
	// replaced is the id of the instance that was to be replaced, empty for a
	// replacement that an earlier process began.
	replaced string
}

// budgetState is a snapshot of one provider's budget.
type budgetState struct {
	seen, underWay, failed, limit int
	lost                          int  // failed and Ready before
	ready                         bool // at least one of those seen is
}

// allows reports whether another replacement may begin.
func (s budgetState) allows(ready bool) bool {
	trial := s.underWay == s.failed && s.ready && (!ready || s.lost <= s.limit)
	return s.underWay < s.limit || trial
}

func newBudget(limit intstr.IntOrString, deadline time.Duration, clk clock.PassiveClock) *budget {
	return &budget{limit: limit, deadline: deadline, clock: clk, fleets: map[string]map[types.UID]*member{}}
}

// observe updates the budget with o. It returns whether a replacement of o's
// Proxy counts, and whether its instance may be replaced.
func (b *budget) observe(o *proxy.Observation) (inBudget, mayReplace bool) {
	provider, uid := o.Proxy.Spec.Provider, o.Proxy.UID
	switch {
	case o.Proxy.Spec.Mode != v1alpha1.ModeManaged:
		return false, false
	case o.Finalizing:
		b.forget(provider, uid)
		return false, false
	}
	inBudget = b.see(provider, uid, o.ReplacementUnderWay(), o.Ready())
	return inBudget, o.AsksBudget() && b.allow(provider, uid, o.Instance.ID)
}

// complete ends a replacement once its instance is what the spec asks for and the
// stored status shows that. If it ended with the answer that reports Ready, other
// processes could see the next replacement begin before this one ends.
func (b *budget) complete(o *proxy.Observation, d *proxy.Decision) {
	if provisionedReason(d) == v1alpha1.ReasonCreated {
		b.end(o.Proxy.Spec.Provider, o.Proxy.UID, o.Instance.ID, d.Status.Phase == v1alpha1.PhaseReady && o.ShownReady())
	}
}

// see records that the Proxy exists, Ready or not, and returns whether its
// replacement counts. underWay is the mark in its status: after a restart the
// replacements of the earlier process count by it.
func (b *budget) see(provider string, uid types.UID, underWay, ready bool) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.expire()
	m := b.member(provider, uid)
	m.lastSeen, m.ready = b.clock.Now(), ready
	if underWay && !m.underWay && !m.discounted {
		m.underWay, m.since = true, m.lastSeen
	}
	return m.underWay
}

// allow reports whether the instance of a Proxy may be replaced now, and counts
// the replacement if so. A Proxy whose replacement counts already is permitted
// again: its spec changed once more, or the first answer was lost.
func (b *budget) allow(provider string, uid types.UID, instanceID string) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.expire()
	m, now := b.member(provider, uid), b.clock.Now()
	m.lastSeen = now
	if !m.underWay {
		if !b.state(provider).allows(m.ready) {
			return false
		}
		*m = member{lastSeen: now, ready: m.ready, underWay: true, since: now, wasReady: m.ready}
	}
	if m.replaced != instanceID {
		m.replaced, m.since = instanceID, now
	}
	return true
}

// end ends the replacement of a Proxy whose instance is the one that the spec asks
// for: when it is Ready, or when it is the very instance that was to be replaced,
// so that the edit was reverted.
func (b *budget) end(provider string, uid types.UID, instanceID string, ready bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	m := b.fleets[provider][uid]
	if m == nil || !m.underWay && !m.discounted {
		return
	}
	reverted := m.replaced != "" && m.replaced == instanceID
	if ready || reverted {
		*m = member{lastSeen: m.lastSeen, ready: m.ready}
	}
	for _, m := range b.fleets[provider] {
		if ready && !reverted && b.failed(m) {
			m.underWay, m.discounted = false, true
		}
	}
}

// failed reports whether the replacement has timed out.
func (b *budget) failed(m *member) bool {
	return m.underWay && b.clock.Since(m.since) > b.deadline
}

// forget drops a Proxy that is being deleted.
func (b *budget) forget(provider string, uid types.UID) {
	b.mu.Lock()
	defer b.mu.Unlock()
	delete(b.fleets[provider], uid)
}

// states returns the budgets of all providers with seen Proxies.
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

func (b *budget) member(provider string, uid types.UID) *member {
	if b.fleets[provider] == nil {
		b.fleets[provider] = map[types.UID]*member{}
	}
	if b.fleets[provider][uid] == nil {
		b.fleets[provider][uid] = &member{}
	}
	return b.fleets[provider][uid]
}

func (b *budget) state(provider string) budgetState {
	s := budgetState{seen: len(b.fleets[provider])}
	s.limit = limitOf(b.limit, s.seen)
	for _, m := range b.fleets[provider] {
		s.ready = s.ready || m.ready
		if m.underWay {
			s.underWay++
		}
		if b.failed(m) {
			s.failed++
			if m.wasReady {
				s.lost++
			}
		}
	}
	return s
}

// expire drops Proxies that were not seen lately. It scans all of them, so it runs
// once a minute.
func (b *budget) expire() {
	now := b.clock.Now()
	if now.Before(b.nextExpiry) {
		return
	}
	b.nextExpiry = now.Add(expiryInterval)
	oldest := now.Add(-seenLately)
	maps.DeleteFunc(b.fleets, func(_ string, fleet map[types.UID]*member) bool {
		maps.DeleteFunc(fleet, func(_ types.UID, m *member) bool { return m.lastSeen.Before(oldest) })
		return len(fleet) == 0
	})
}
