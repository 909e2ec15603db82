package prober

import (
	"time"

	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/api/v1alpha1"
	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/prober/probe"
)

const (
	// suspectEvery is how often a single failure has its target checked at most.
	suspectEvery = 5 * time.Second
	// flipEvery is the same for failures that decide about a verdict.
	flipEvery = time.Second
	// siteIdle is how long a target is remembered that no failure was about.
	siteIdle = time.Hour
	// contradictions is how many probes through proxies must work, and more than
	// fail, for a direct check that fails to be taken for wrong: a firewall may be in
	// the prober's way alone.
	contradictions = 3
	// refutations is how many checks in a row must fail against that. Once may be a
	// target that answers for a moment in the middle of an outage.
	refutations = 2
	// countFor is for how long probes through proxies are counted, if nothing comes
	// of it.
	countFor = time.Minute
)

// site is a probe target, as far as it was under suspicion.
type site struct {
	name  string
	check v1alpha1.HealthCheck // of the newest suspicious probe: how to ask
	used  time.Time

	wanted   bool      // a check should be made
	checking bool      // one is under way
	begun    time.Time // when the newest check began
	good     time.Time // when the newest check began that worked
	message  string    // of the newest check that failed

	down    bool
	since   time.Time
	void    bool      // the direct check is contradicted, until it works
	back    time.Time // when the check began that found it back
	waiting []*target // accused, until a check ends

	counted time.Time // since when probes through proxies are counted, while it is down
	worked  int
	failed  int
	refuted bool // the check under way, should it fail
	against int  // checks in a row that failed and were
}

// site returns the target of a failing probe, and how to ask it.
func (g *guard) site(name string, t *target, now time.Time) *site {
	s := g.sites[name]
	if s == nil {
		g.sweep(now)
		s = &site{name: name}
		g.sites[name] = s
	}
	s.used = now
	s.check = t.order.healthCheck
	s.check.ProbeURL = t.asked
	return s
}

// sweep forgets targets that nothing was held against for long, such as those that
// no ProxyProbe names any more.
func (g *guard) sweep(now time.Time) {
	for _, s := range g.sites {
		if !s.checking && now.Sub(s.used) > siteIdle {
			g.forget(s)
		}
	}
}

// forget ends all that is known of a target, with what the metric says of it.
func (g *guard) forget(s *site) {
	if s.down {
		g.metrics.targetDown.WithLabelValues(causeDirect).Dec()
		g.log.Info("the probe target that was down is not watched any longer", "target", s.name)
	}
	delete(g.sites, s.name)
}

// excuse is what a target that is down says for those that fail with it.
func (s *site) excuse() string { return "the direct check of " + s.name + " fails too: " + s.message }

// reached notes that a probe which began then came through to the target, and
// reports whether that matters: it is taken for down.
func (s *site) reached(began time.Time) bool {
	if !s.down || !began.After(s.counted) {
		return false
	}
	s.worked++
	return s.reachable()
}

// reachable reports whether enough probes came through to a target that is taken for
// down. Either it is back, or the direct check is wrong: the next one tells.
func (s *site) reachable() bool {
	return s.down && s.worked >= contradictions && s.worked > s.failed
}

// due is when the next check is to begin; no time when none is.
func (s *site) due() (time.Time, bool) {
	switch {
	case s.checking:
		return time.Time{}, false
	case len(s.waiting) > 0 || s.reachable():
		return s.begun.Add(flipEvery), true
	case s.down || s.void || s.wanted:
		return s.begun.Add(suspectEvery), true
	}
	return time.Time{}, false
}

// begin takes the check that is due.
func (s *site) begin(now time.Time) v1alpha1.HealthCheck {
	s.checking, s.wanted, s.begun, s.refuted = true, false, now, s.reachable()
	return s.check
}

// weigh holds the probes through proxies against a check that has ended. They count
// on over checks that fail as they should: a check may take longer than the time
// between two, and a small fleet makes few probes.
func (s *site) weigh(works bool, now time.Time) {
	switch {
	case s.refuted && !works:
		s.against++
	case works || !s.down || now.Sub(s.counted) >= countFor:
		s.against = 0
	default:
		return
	}
	s.worked, s.failed, s.counted = 0, 0, now
}

// end takes in what a check said, and returns the accused that it is about: those
// who failed before it began.
func (s *site) end(r probe.Result, now time.Time) (heard []*target) {
	s.checking = false
	if r.Outcome != probe.Inconclusive {
		s.weigh(r.Outcome == probe.Success, now)
	}
	if r.Outcome == probe.Success {
		s.good, s.void = s.begun, false
	} else {
		s.message = r.Message
	}
	var later []*target
	for _, t := range s.waiting {
		switch {
		case t.accused == nil: // acquitted, forgotten or begun afresh meanwhile
		case t.accused.at.After(s.begun):
			later = append(later, t)
		default:
			heard = append(heard, t)
		}
	}
	s.waiting = later
	return heard
}
