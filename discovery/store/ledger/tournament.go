package ledger

import "math/bits"

// tournament finds the entry with the smallest key.
//
// Seats are in groups of eight. Above each group is the best of it, those again
// in groups of eight, up to a single group. When a key changes the groups above
// its seat are played anew, mostly only the first: as soon as a winner is who it
// was, all is right further up. What is compared lies side by side, a group in
// one line of the processor's cache. That is what counts: with many proxies it
// is the memory that takes the time.
type tournament struct {
	entries []*entry // by seat, nil where nobody sits
	bottom  [][fanout]key
	levels  [][]winners // above the bottom, the last one of a single group
}

// winners of a group of groups below.
type winners struct {
	keys  [fanout]key
	seats [fanout]int32
}

// fanout is the size of a group.
const fanout = 8

// put gives a seat a key, and plays no group.
func (t *tournament) put(seat int32, k key) {
	t.bottom[seat/fanout][seat%fanout] = k
}

// set gives a seat a key.
func (t *tournament) set(seat int32, k key) {
	t.put(seat, k)
	t.play(seat)
}

// first is the smallest key, and its seat.
func (t *tournament) first() (key, int32) {
	if len(t.bottom) == 0 {
		return parked, 0
	}
	return t.winner(len(t.levels), 0)
}

// play has the groups above a seat played anew.
func (t *tournament) play(seat int32) {
	for i, n := int(seat)/fanout, 0; n < len(t.levels); i, n = i/fanout, n+1 {
		if !t.promote(n, i) {
			return
		}
	}
}

// playAll has all groups played.
func (t *tournament) playAll() {
	below := len(t.bottom)
	for n := range t.levels {
		for i := range below {
			t.promote(n, i)
		}
		below = len(t.levels[n])
	}
}

// promote puts the winner of the ith group below level n into level n, and
// reports whether that changed anything.
func (t *tournament) promote(n, i int) bool {
	k, seat := t.winner(n, i)
	up := &t.levels[n][i/fanout]
	if up.keys[i%fanout] == k && up.seats[i%fanout] == seat {
		return false
	}
	up.keys[i%fanout], up.seats[i%fanout] = k, seat
	return true
}

// winner of the ith group below level n: its key and its seat.
func (t *tournament) winner(n, i int) (key, int32) {
	keys := &t.bottom[i]
	if n > 0 {
		keys = &t.levels[n-1][i].keys
	}
	best := keys[0]
	for _, k := range keys[1:] {
		best = min(best, k)
	}
	var with uint // a bit for each that has it
	for j, k := range keys {
		if k == best {
			with |= 1 << j
		}
	}
	first := t.seat(n, i, with)
	if with &= with - 1; with == 0 || !best.shared() {
		return best, first
	}
	for ; with != 0; with &= with - 1 {
		if other := t.seat(n, i, with); t.entries[other].named(t.entries[first]) < 0 {
			first = other
		}
	}
	return best, first
}

// seat of the first of those in a group below level n that have a bit.
func (t *tournament) seat(n, i int, with uint) int32 {
	j := bits.TrailingZeros(with)
	if n == 0 {
		return int32(fanout*i + j)
	}
	return t.levels[n-1][i].seats[j]
}

// widen adds a seat, and above it what that takes.
func (t *tournament) widen() {
	i := len(t.entries)
	t.entries = append(t.entries, nil)
	if i == fanout*len(t.bottom) {
		t.bottom = append(t.bottom, nobody())
	}
	for n, below := 0, len(t.bottom); below > 1; n, below = n+1, len(t.levels[n]) {
		i /= fanout
		crown := n == len(t.levels)
		if crown {
			t.levels = append(t.levels, nil)
		}
		if i >= fanout*len(t.levels[n]) {
			t.levels[n] = append(t.levels[n], winners{keys: nobody()})
		}
		if crown {
			t.promote(n, 0) // the winner of what was a single group
		}
	}
}

// nobody is a group without entries.
func nobody() [fanout]key {
	return [fanout]key{parked, parked, parked, parked, parked, parked, parked, parked}
}
