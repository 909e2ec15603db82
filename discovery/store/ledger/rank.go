package ledger

import (
	"cmp"
	"math"
)

// key is what lease.Compare compares, short of names, in one number, the smaller
// the more wanted: from the top keyActive bits of running leases, keyClass of the
// latency class, keySince of the last grant. No more leases can be asked for of a
// proxy than fit, and no more classes are there.
type key uint64

const (
	keyActive = 17
	keyClass  = 6
	keySince  = 64 - keyActive - keyClass
	// maxSince is the largest entry.since.
	maxSince = 1<<keySince - 1
	// parked is the key of a proxy that cannot be leased, and of no proxy.
	parked key = math.MaxUint64
)

// shared reports whether several proxies may have the key: only those that are
// not known to have been granted, and those that cannot be leased.
func (k key) shared() bool { return k&maxSince == 0 && k != parked }

// key is the proxy's where it is wanted for the target.
func (e *entry) key(target string) key {
	if !e.free(target) {
		return parked
	}
	active := min(uint64(len(e.held)), 1<<keyActive-1)
	return key(active<<(keyClass+keySince) | uint64(e.class)<<keySince | e.since)
}

// free reports whether the proxy can be leased for the target now.
func (e *entry) free(target string) bool {
	return e.hasRoom() && !e.cools(target)
}

func (e *entry) hasRoom() bool { return len(e.held) < int(e.room) }

func (e *entry) cools(target string) bool {
	if len(e.cooling) == 0 {
		return false
	}
	return e.cooling[""] != nil || e.cooling[target] != nil
}

// named compares names, the last of what tells proxies apart.
func (e *entry) named(o *entry) int {
	return cmp.Or(cmp.Compare(e.Proxy, o.Proxy), cmp.Compare(e.ProxyUID, o.ProxyUID))
}

// granted notes that a lease was granted on the proxy under this token. Tokens
// have more bits than a key has room for, so they are counted from an epoch on.
// A token far beyond it, as a store gives that lost everything and started anew,
// starts another, and all earlier grants are forgotten.
func (g *Ledger) granted(e *entry, token uint64) {
	if token > g.epoch+maxSince {
		g.epoch = token - 1
		for _, other := range g.proxies {
			other.since = 0
			other.touch()
		}
	}
	if token > g.epoch {
		e.since = max(e.since, token-g.epoch)
	}
}
