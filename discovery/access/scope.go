// Package access says who may do what: named bearer tokens with scopes and a
// rate each, read from a file that may change at any time.
package access

import (
	"fmt"
	"slices"
)

// Scope is what a token is good for. Each scope includes those before it, in the
// order of Scopes.
type Scope string

const (
	// ScopeRead lists proxies.
	ScopeRead Scope = "read"
	// ScopeLease gets, renews, releases and reports on leases.
	ScopeLease Scope = "lease"
	// ScopeAdmin sees the leases of everybody and ends them.
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
			return "", fmt.Errorf("scope %q is not known; known are %q", clip(string(s)), Scopes())
		}
		if best == "" || s.Includes(best) {
			best = s
		}
	}
	if best == "" {
		return "", fmt.Errorf("it has no scopes; give it some of %q", Scopes())
	}
	return best, nil
}
