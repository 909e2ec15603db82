package prober

import (
	"net/netip"
	"time"

	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/api/v1alpha1"
	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/prober/probe"
)

const (
	// firstAgain is when an instance that did not work at first is probed again. The
	// time doubles with each probe, up to the interval: what was not up yet must not
	// wait for half a minute to be seen.
	firstAgain = time.Second
	// A proxy is tested for letting everybody in once after it began to work and then
	// after openAgain intervals, and not more often than openAtMost. One that was
	// found open is tested with every probe.
	openAgain  = 10
	openAtMost = 5 * time.Minute
)

// life is what is kept of one instance beside verdict and report. A new instance
// begins with the zero value.
type life struct {
	met    bool      // it was Healthy, now or before
	tries  uint8     // probes that did not work before that
	first  time.Time // begin of the first probe
	turn   uint32    // probes so far: which URL is next
	asked  string    // the URL of the newest one
	recent recent

	exit, lastExit netip.Addr // the one that counts, and that of the newest success

	openTested time.Time
	open       bool // at the last test

	behind   *site     // the target of the newest failure that may be its doing
	failedAt time.Time // when that failure was
	mixed    bool      // there is an older one, and another target may be to blame

	accused *accusation // until the guard lets it be judged
	held    bool        // the guard keeps the newest failures from counting
	marked  bool        // and the status is to say so
	trial   string      // what the guard has to say about it
}

// accusation is a full run of failures that waits for the guard's judgement.
type accusation struct {
	evidence evidence
	target   string    // host:port of the probe URL
	at       time.Time // of the failure that is judged
	waits    bool      // for a direct check
}

// suspect notes a failure that may be the doing of s.
func (t *target) suspect(s *site, now time.Time) {
	t.mixed = t.mixed || t.behind != nil && t.behind.name != s.name
	t.behind, t.failedAt = s, now
}

// forget drops the failures that are not the proxy's own for certain, and what they
// were the reason for.
func (t *target) forget() {
	t.tally, t.accused = t.tally.forget(), nil
	t.suspectNobody()
}

// suspectNobody is for when there are no failures left that a target may be to blame
// for.
func (t *target) suspectNobody() { t.behind, t.mixed = nil, false }

// condemn turns an accused target to Unhealthy.
func (t *target) condemn(now time.Time) {
	t.tally = t.tally.turn(v1alpha1.VerdictUnhealthy, now)
	t.evidence = t.accused.evidence
	t.settle()
}

// settle ends every suspicion and accusation: there are no failures left that could
// decide about the verdict.
func (t *target) settle() {
	t.suspectNobody()
	t.release()
}

// release ends what the guard had against judging the target.
func (t *target) release() { t.accused, t.held, t.marked, t.trial = nil, false, false, "" }

// plan is what differs from one probe of a target to the next.
type plan struct {
	url      string
	testOpen bool
}

// plan says what the probe that begins now is to do.
func (t *target) plan(now time.Time) plan {
	if t.first.IsZero() {
		t.first = now
	}
	t.asked = t.order.healthCheck.ProbeURL
	if urls := t.order.healthCheck.ProbeURLs; len(urls) > 0 {
		t.asked = string(urls[(t.offset()+t.turn)%uint32(len(urls))])
	}
	t.turn++
	return plan{url: t.asked, testOpen: t.dueForOpenTest(now)}
}

// offset differs between targets, so that proxies made together do not all ask the
// same URL at the same time (FNV-1a of the UID).
func (t *target) offset() uint32 {
	h := uint32(2166136261)
	for i := range len(t.uid) {
		h = (h ^ uint32(t.uid[i])) * 16777619
	}
	return h
}

func (t *target) dueForOpenTest(now time.Time) bool {
	if !t.order.healthCheck.OpenProxyTest || t.order.secret == "" {
		return false
	}
	return t.open || now.Sub(t.openTested) >= max(openAgain*t.order.interval(), openAtMost)
}

// learn takes over what a probe showed beside its outcome, and returns its message
// in the copy that is kept anyway.
func (t *target) learn(r probe.Result, now time.Time) string {
	message := t.recent.add(r)
	if r.OpenTested {
		t.openTested, t.open = now, r.Reason == probe.ReasonOpenProxy
	}
	if r.Outcome != probe.Success {
		return message
	}
	// An exit counts at first sight, and another one only when it is seen twice in a
	// row: a provider that uses another exit for each request must not cause a write
	// for each.
	if r.Exit == t.lastExit || !t.exit.IsValid() || !r.Exit.IsValid() {
		t.exit = r.Exit
	}
	t.lastExit = r.Exit
	return message
}

// hasten makes the next probe of an instance that did not work yet come earlier.
func (t *target) hasten(now time.Time) {
	if t.met {
		return
	}
	wait := firstAgain << min(t.tries, 20)
	if wait >= t.order.interval() {
		return
	}
	t.tries++
	if again := now.Add(wait); again.Before(t.due) {
		t.due, t.spread = again, true
	}
}

// tooEarly reports whether an instance is too young to be called Unhealthy.
func (t *target) tooEarly(now time.Time) bool {
	hc := &t.order.healthCheck
	// Half of the intervals, since the second probe may come half an interval early.
	grace := min(firstCondemned, time.Duration(hc.FailureThreshold-1)*t.order.interval()/2)
	return t.tally.verdict == "" && now.Sub(t.first) < grace
}

// atStake reports whether failures could cost the target something.
func (t *target) atStake() bool { return t.tally.verdict != v1alpha1.VerdictUnhealthy }
