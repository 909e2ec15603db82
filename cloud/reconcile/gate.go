package reconcile

import (
	"fmt"
	"hash/fnv"
	"time"

	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/api/adapter"
)

const (
	stockoutFirst = 2 * time.Minute // stockoutFirst and stockoutMost bound the backoff of a zone without capacity
	stockoutMost  = 30 * time.Minute
	trialTimeout  = 2 * time.Minute // how long the one insert that tests whether a shortage is over may take before another one may try
)

// gateKey is what can be short: a machine type in a zone.
type gateKey struct{ zone, machineType string }

// gate is closed during a shortage, for all Proxies of the account, so that a
// thousand of them do not each send an insert to learn of it. After its backoff one
// insert may try.
type gate struct {
	class      adapter.FailureClass
	message    string
	until      time.Time
	stockouts  int
	trial      string // the UID that may try until trialUntil
	trialUntil time.Time
}

// closedUntil returns when uid may insert, and zero when it may now.
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

// stockout closes the gate, with backoff. The stockouts of inserts that were sent
// before it closed do not count again.
func (gs gates) stockout(k gateKey, message string, now time.Time) time.Time {
	g := gs.closed(k, adapter.FailureStockout, message)
	if !now.Before(g.until) {
		g.stockouts++
		g.until = now.Add(backoff(stockoutFirst, stockoutMost, g.stockouts))
	}
	return g.until
}

// quota closes the gate for the given time.
func (gs gates) quota(k gateKey, message string, now time.Time, wait time.Duration) time.Time {
	g := gs.closed(k, adapter.FailureQuotaExceeded, message)
	g.until = now.Add(wait)
	return g.until
}

// closed returns the gate of a shortage, whose end the caller sets.
func (gs gates) closed(k gateKey, class adapter.FailureClass, message string) *gate {
	g := gs[k]
	if g == nil {
		g = &gate{}
		gs[k] = g
	}
	g.class, g.message, g.trial = class, message, ""
	return g
}

// startTrial lets uid try whether a shortage is over.
func (gs gates) startTrial(k gateKey, uid string, now time.Time) {
	if g := gs[k]; g != nil {
		g.trial, g.trialUntil = uid, now.Add(trialTimeout)
	}
}

// choose returns the first zone that is open, or the failure that ends first. A
// quota does not fall back to the next zone: it is a deliberate limit.
func (gs gates) choose(uid string, zones []string, machineType string, now time.Time) (zone string, short *failure) {
	for _, zone := range zones {
		g := gs[gateKey{zone, machineType}]
		until := g.closedUntil(uid, now)
		if until.IsZero() {
			return zone, nil
		}
		if short == nil || until.Before(short.until) {
			short = &failure{class: g.class, message: g.message, until: until}
		}
		if g.class == adapter.FailureQuotaExceeded {
			break
		}
	}
	return "", short
}

// backoff is first, doubled with each further attempt, at most most. attempt
// counts from 1.
func backoff(first, most time.Duration, attempt int) time.Duration {
	d := first
	for i := 1; i < attempt && d < most; i++ {
		d *= 2
	}
	return min(d, most)
}

// jitter shortens d by up to a fifth, so that Proxies that failed together do not
// retry together. The same attempt of the same Proxy has the same jitter.
func jitter(d time.Duration, uid string, attempt int) time.Duration {
	h := fnv.New32a()
	fmt.Fprint(h, uid, attempt)
	return d - time.Duration(float64(d)/5*float64(h.Sum32())/(1<<32))
}
