package reconcile

import (
	"time"

	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/api/adapter"
)

const (
	// stockoutFirst and stockoutMost bound the back-off of a zone that is out
	// of capacity, which doubles in between.
	stockoutFirst = 2 * time.Minute
	stockoutMost  = 30 * time.Minute
	// trialTimeout is how long one insert may take to find out whether a
	// shortage is over, before another one may try.
	trialTimeout = 2 * time.Minute
)

// gateKey is what runs short: a machine type in a zone.
type gateKey struct{ zone, machineType string }

// gate is closed while a zone is short of something, for all Proxies of the
// account: a thousand of them must not find out one by one. When its time is
// over one insert may try.
type gate struct {
	class   adapter.FailureClass
	message string
	until   time.Time
	streak  int
	// trial is the UID that may try until trialUntil.
	trial      string
	trialUntil time.Time
}

// opens returns the zero time when uid may insert now, otherwise when to ask
// again.
func (g *gate) closedUntil(uid string, now time.Time) time.Time {
	switch {
	case g == nil:
		return time.Time{}
	case now.Before(g.until):
		return g.until
	case g.trial != "" && g.trial != uid && now.Before(g.trialUntil):
		return g.trialUntil
	}
	return time.Time{}
}

// gates are the shortages of an account.
type gates map[gateKey]*gate

// stockout closes the gate for longer each time. Inserts that were sent before
// it closed bring the same news and count once.
func (gs gates) stockout(k gateKey, message string, now time.Time) time.Time {
	g := gs.getOrAdd(k)
	g.class, g.message = adapter.FailureStockout, message
	if now.Before(g.until) {
		return g.until
	}
	g.streak++
	g.until = now.Add(backoff(stockoutFirst, stockoutMost, g.streak))
	return g.until
}

// quota closes the gate for the given time.
func (gs gates) quota(k gateKey, message string, now time.Time, wait time.Duration) time.Time {
	g := gs.getOrAdd(k)
	g.class, g.message = adapter.FailureQuotaExceeded, message
	g.until = now.Add(wait)
	return g.until
}

func (gs gates) getOrAdd(k gateKey) *gate {
	g := gs[k]
	if g == nil {
		g = &gate{}
		gs[k] = g
	}
	g.trial = ""
	return g
}

// tries notes that uid tries whether a shortage is over.
func (gs gates) startTrial(k gateKey, uid string, now time.Time) {
	if g := gs[k]; g != nil {
		g.trial, g.trialUntil = uid, now.Add(trialTimeout)
	}
}

// choice is where an insert may go.
type choice struct {
	zone string
	// until is when to ask again if it may go nowhere; failure says why.
	until   time.Time
	failure *failure
}

// choose picks the first zone that is not out of capacity. A quota is not
// evaded by going elsewhere: it is somebody's decision.
func (gs gates) choose(uid string, zones []string, machineType string, now time.Time) choice {
	var c choice
	for _, zone := range zones {
		g := gs[gateKey{zone, machineType}]
		until := g.closedUntil(uid, now)
		if until.IsZero() {
			return choice{zone: zone}
		}
		if c.failure == nil || until.Before(c.until) {
			c = choice{until: until, failure: &failure{class: g.class, message: g.message, until: until}}
		}
		if g.class == adapter.FailureQuotaExceeded {
			break
		}
	}
	return c
}

// backoff is first, doubled with each further attempt, at most most. attempt
// counts from 1.
func backoff(first, most time.Duration, attempt int) time.Duration {
	d := first
	for range attempt - 1 {
		if d >= most {
			break
		}
		d *= 2
	}
	return min(d, most)
}
