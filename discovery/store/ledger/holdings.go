package ledger

// The leases that run on an instance are in its proxy's entry, where an acquire
// is anyway, for as long as the instance is offered. Those of other instances,
// that are deleted, replaced or not yet known, are stranded.

// holding is the running leases of one instance.
type holding struct{ held []*held }

func (x *holding) add(h *held) {
	h.place = len(x.held)
	x.held = append(x.held, h)
}

func (x *holding) remove(h *held) {
	last := len(x.held) - 1
	moved := x.held[last]
	x.held[h.place], moved.place = moved, h.place
	x.held[last], x.held = nil, x.held[:last]
}

// holdingOf returns the holding that a lease that runs belongs to.
func (g *Ledger) holdingOf(h *held) *holding {
	if h.entry != nil {
		return &h.entry.holding
	}
	x := g.stranded[h.Instance]
	if x == nil {
		x = &holding{}
		g.stranded[h.Instance] = x
	}
	return x
}

// strand takes the leases from a proxy whose instance is not offered any more.
func (g *Ledger) strand(e *entry) {
	if len(e.held) > 0 {
		g.stranded[e.Instance] = &holding{e.held}
	}
	for _, h := range e.held {
		h.entry = nil
	}
	e.held = nil
}

// adopt gives a proxy the leases that run on its instance.
func (g *Ledger) adopt(e *entry) {
	x := g.stranded[e.Instance]
	if x == nil {
		return
	}
	delete(g.stranded, e.Instance)
	e.held = x.held
	for _, h := range e.held {
		h.sitOn(e)
	}
}

// sitOn has a lease use the names that its proxy has anyway. Those that it was read
// from a file or from Redis with take memory of their own.
func (h *held) sitOn(e *entry) {
	h.entry, h.Instance = e, e.Instance
	if h.Proxy == e.Proxy {
		h.Proxy = e.Proxy
	}
}
