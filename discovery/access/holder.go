package access

import (
	"fmt"
	"slices"
	"time"

	"golang.org/x/time/rate"

	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/internal/bearer"
)

// Scope is what a token may do. Each scope includes those before it in Scopes.
type Scope string

const (
	// ScopeRead lists proxies.
	ScopeRead Scope = "read"
	// ScopeLease acquires, renews, releases and reports on leases.
	ScopeLease Scope = "lease"
	// ScopeAdmin lists the leases of all tokens and ends them.
	ScopeAdmin Scope = "admin"
)

// Scopes lists all scopes, the least powerful first.
func Scopes() []Scope { return []Scope{ScopeRead, ScopeLease, ScopeAdmin} }

// Known reports whether s is one of Scopes.
func (s Scope) Known() bool { return slices.Contains(Scopes(), s) }

// Includes reports whether a token with scope s may do what needs scope wanted.
func (s Scope) Includes(wanted Scope) bool {
	return s.Known() && slices.Index(Scopes(), s) >= slices.Index(Scopes(), wanted)
}

// highest returns the most powerful of some scopes.
func highest(scopes []Scope) (Scope, error) {
	var best Scope
	for _, s := range scopes {
		if !s.Known() {
			return "", fmt.Errorf("unknown scope %q; known are %q", clip(string(s)), Scopes())
		}
		if best == "" || s.Includes(best) {
			best = s
		}
	}
	if best == "" {
		return "", fmt.Errorf("it has no scopes; want some of %q", Scopes())
	}
	return best, nil
}

// Holder is the client that holds a token.
type Holder struct {
	// Name of the token.
	Name string
	// Scope is the most powerful one of the token.
	Scope Scope

	limiter *rate.Limiter // nil: no rate limit
}

// Allow counts a request at the time now. Over the rate limit it returns the time
// until the next request is allowed.
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

// setRate limits h to so many requests a second, 0 for no limit, with a burst of two
// seconds. An unchanged limit keeps the state of old.
func (h *Holder) setRate(perSecond float64, old *Holder) {
	switch {
	case perSecond == 0:
		h.limiter = nil
	case old != nil && old.limiter != nil && old.limiter.Limit() == rate.Limit(perSecond):
		h.limiter = old.limiter
	default:
		h.limiter = rate.NewLimiter(rate.Limit(perSecond), max(1, int(2*perSecond)))
	}
}

// keyring is an immutable set of tokens with their holders.
type keyring struct {
	tokens  []bearer.Token
	holders []*Holder
}

// newKeyring takes tokens that Parse has checked. Holders keep the state of their rate
// limit in old, by name.
func newKeyring(tokens []Token, perSecond float64, old keyring) keyring {
	var ring keyring
	for _, t := range tokens {
		scope, _ := highest(t.Scopes) // checked by Parse
		h := &Holder{Name: t.Name, Scope: scope}
		limit := perSecond
		if t.RequestsPerSecond != nil {
			limit = *t.RequestsPerSecond
		}
		var before *Holder
		if i := slices.IndexFunc(old.holders, func(h *Holder) bool { return h.Name == t.Name }); i >= 0 {
			before = old.holders[i]
		}
		h.setRate(limit, before)
		for _, v := range t.values() {
			ring.tokens, ring.holders = append(ring.tokens, bearer.New(v)), append(ring.holders, h)
		}
	}
	return ring
}

// identify returns the holder of the token in an Authorization header, nil for an
// unknown token.
func (r keyring) identify(header string) *Holder {
	i := bearer.Find(header, r.tokens)
	if i < 0 {
		return nil
	}
	return r.holders[i]
}
