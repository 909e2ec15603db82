package access

import (
	"time"

	"golang.org/x/time/rate"

	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/internal/bearer"
)

// Holder is who bears a token.
type Holder struct {
	// Name of the token.
	Name string
	// Scope is the most powerful one that the token has.
	Scope Scope

	limiter *rate.Limiter // nil lets everything through
}

// Allow counts a request at the time now. When it is one too many it returns
// for how long to wait before the next.
func (h *Holder) Allow(now time.Time) (ok bool, wait time.Duration) {
	if h.limiter == nil {
		return true, 0
	}
	r := h.limiter.ReserveN(now, 1)
	if wait = r.DelayFrom(now); wait == 0 {
		return true, 0
	}
	r.CancelAt(now)
	return false, wait
}

// burst is how many requests may come at once: those of two seconds.
func burst(perSecond float64) int { return max(1, int(2*perSecond)) }

// setRate gives h the limiter for so many requests a second, 0 for no limit,
// keeping what old has counted.
func (h *Holder) setRate(perSecond float64, old *Holder) {
	switch {
	case perSecond == 0:
		h.limiter = nil
	case old != nil && old.limiter != nil && old.limiter.Limit() == rate.Limit(perSecond):
		h.limiter = old.limiter
	default:
		h.limiter = rate.NewLimiter(rate.Limit(perSecond), burst(perSecond))
	}
}

// keyring is one set of tokens, each with its holder. It never changes.
type keyring struct {
	tokens  []bearer.Token
	holders []*Holder
}

// newKeyring takes tokens that Parse has checked. Holders that old knows by
// name keep what they have used up of their rate.
func newKeyring(tokens []Token, perSecond float64, old keyring) keyring {
	var ring keyring
	for _, t := range tokens {
		scope, _ := highest(t.Scopes) // checked by Parse
		h := &Holder{Name: t.Name, Scope: scope}
		limit := perSecond
		if t.RequestsPerSecond != nil {
			limit = *t.RequestsPerSecond
		}
		h.setRate(limit, old.holder(t.Name))
		for _, v := range t.values() {
			ring.tokens, ring.holders = append(ring.tokens, bearer.New(v)), append(ring.holders, h)
		}
	}
	return ring
}

func (r keyring) holder(name string) *Holder {
	for _, h := range r.holders {
		if h.Name == name {
			return h
		}
	}
	return nil
}

// identify returns who bears the token in an Authorization header.
func (r keyring) identify(header string) *Holder {
	i := bearer.Find(header, r.tokens)
	if i < 0 {
		return nil
	}
	return r.holders[i]
}
