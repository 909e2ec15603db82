package ledger

import "slices"

// view keeps the proxies that match one selector in order of preference for
// one target, so that the best is at hand.
//
// Proxies keep their seats. What makes one more wanted, as the end of a lease or of
// a cooldown, is told to its views by touch. What makes one less wanted, as a grant
// or a cooldown that begins, is not: a view's keys may be smaller than they should
// be, and that is found out when the proxy comes up. Until then most leases have
// ended again, and a grant does not wait for the memory of all views.
type view struct {
	selector map[string]string
	target   string
	tournament
	spare []int32 // seats where nobody sits
	used  uint64  // when it was last asked, for evictions
}

// place is where a proxy sits in a view.
type place struct {
	view *view
	seat int32
}

// newView seats proxies.
func newView(selector map[string]string, target string, members []*entry) *view {
	v := &view{selector: selector, target: target}
	v.entries = slices.Grow(v.entries, len(members))
	for _, e := range members {
		v.sit(e)
	}
	v.playAll()
	return v
}

// size is how many proxies sit in the view.
func (v *view) size() int { return len(v.entries) - len(v.spare) }

// join seats a proxy.
func (v *view) join(e *entry) { v.play(v.sit(e)) }

// sit gives a proxy a seat, and plays no group.
func (v *view) sit(e *entry) int32 {
	seat := int32(len(v.entries))
	if last := len(v.spare) - 1; last >= 0 {
		seat, v.spare = v.spare[last], v.spare[:last]
	} else {
		v.widen()
	}
	v.entries[seat] = e
	v.put(seat, e.key(v.target))
	e.places = append(e.places, place{v, seat})
	return seat
}

// leave takes a proxy from its seat.
func (v *view) leave(seat int32) {
	v.set(seat, parked)
	e := v.entries[seat]
	e.places = slices.DeleteFunc(e.places, func(p place) bool { return p.view == v })
	v.entries[seat] = nil
	v.spare = append(v.spare, seat)
}

// touch puts a proxy right in its views. All its keys are written before
// anything is read beside one: the processor then fetches the memory for them at
// once, and not for one after another.
func (e *entry) touch() {
	anyTarget := e.key("")
	for _, p := range e.places {
		k := anyTarget
		if e.cooling[p.view.target] != nil {
			k = parked
		}
		p.view.put(p.seat, k)
	}
	for _, p := range e.places {
		p.view.play(p.seat)
	}
}

// best returns the preferred proxy that is allowed, nil when there is none, and
// how many it had to pass over.
func (v *view) best(allowed func(*entry) bool) (found *entry, passed int) {
	var aside []int32
	for {
		k, seat := v.first()
		if k == parked {
			break
		}
		e := v.entries[seat]
		if now := e.key(v.target); now != k {
			v.set(seat, now) // it is less wanted than it was
			continue
		}
		if allowed(e) {
			found = e
			break
		}
		v.set(seat, parked) // for this time
		aside = append(aside, seat)
	}
	for _, seat := range aside {
		v.set(seat, v.entries[seat].key(v.target))
	}
	return found, len(aside)
}
