package ledger

import (
	"slices"
	"sort"
)

// roll lists the leases that run in the order in which they were granted, so that
// a part of them is found without a look at all. Those that have ended leave a
// gap, until there are more gaps than leases.
type roll struct {
	places []rollPlace
	gaps   int
}

// rollPlace holds nil for a gap.
type rollPlace struct {
	fence uint64
	held  *held
}

// fewGaps are no reason to close them.
const fewGaps = 64

// from is the first place with that token or a larger one.
func (r *roll) from(fence uint64) int {
	return sort.Search(len(r.places), func(i int) bool { return r.places[i].fence >= fence })
}

// add enters a lease: at the end, but for replicas, which do not learn of grants
// in their order.
func (r *roll) add(h *held) {
	i := len(r.places)
	if i > 0 && r.places[i-1].fence >= h.FencingToken {
		i = r.from(h.FencingToken)
		if r.places[i].fence == h.FencingToken && r.places[i].held == nil {
			r.places[i].held = h
			r.gaps--
			return
		}
	}
	r.places = slices.Insert(r.places, i, rollPlace{h.FencingToken, h})
}

// remove strikes a lease out.
func (r *roll) remove(h *held) {
	for i := r.from(h.FencingToken); i < len(r.places) && r.places[i].fence == h.FencingToken; i++ {
		if r.places[i].held != h {
			continue
		}
		r.places[i].held = nil
		if r.gaps++; r.gaps > fewGaps && r.gaps > len(r.places)/2 {
			r.places = slices.DeleteFunc(r.places, func(p rollPlace) bool { return p.held == nil })
			r.gaps = 0
		}
		return
	}
}
