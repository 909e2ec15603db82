package check

import (
	"slices"
	"strconv"

	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/stack/chaos/history"
)

// figures must not grow: a process may have factor times its baseline, and extra more.
// The end is measured without load and the baseline under it, so that the allowance is
// for what stays:
//   - goroutines and descriptors: watches and kept-alive connections; the restart of a peer
//     can leave a few more or fewer, so a fifth and 16;
//   - heap: Go's collector starts at twice the live heap, and 16 MiB are its own;
//   - RSS: unused pages go back to the kernel over minutes;
//   - series: each outcome, code or reason adds a series once, a few dozen with 3 to 14
//     histogram series each. No series is per Proxy.
var figures = []struct {
	name   string
	of     func(*history.Metrics) int64
	factor float64
	extra  int64
}{
	{"goroutines", func(m *history.Metrics) int64 { return int64(m.Goroutines) }, 1.2, 16},
	{"open descriptors", func(m *history.Metrics) int64 { return int64(m.FDs) }, 1.2, 16},
	{"heap bytes in use", func(m *history.Metrics) int64 { return m.Heap }, 2, 16 << 20},
	{"bytes of RSS", func(m *history.Metrics) int64 { return m.RSS }, 2, 48 << 20},
	{"series", func(m *history.Metrics) int64 { return int64(m.Series) }, 1.5, 100},
}

// resources: at the end each process has the figures of its baseline, by the median of
// the samples. A restarted process is compared with the baseline of the one before.
func resources(c *checker) {
	baseline, ok := c.stages[history.StageBaseline]
	settled, ended := c.stages[history.StageSettled]
	if !ok || !ended {
		return
	}
	before, after := c.samples(baseline), c.samples(settled)
	for process, then := range before {
		now := after[process]
		if len(now) == 0 {
			c.report(Resources, settled.to, []string{process}, []int{then[0].Line}, "it was measured in the baseline and not at the end: does it run?")
			continue
		}
		for _, f := range figures {
			was, is := median(then, f.of), median(now, f.of)
			if was < 0 || is < 0 {
				continue
			}
			c.checked(Resources)
			if most := int64(float64(was)*f.factor) + f.extra; is > most {
				last := now[len(now)-1]
				c.report(Resources, last.At, []string{process}, []int{then[0].Line, last.Line}, "%s: %d in the baseline, %d at the end, want at most %d", f.name, was, is, most)
			}
		}
	}
}

func (c *checker) samples(during window) map[string][]*history.Metrics {
	out := map[string][]*history.Metrics{}
	for i := range c.Metrics {
		if m := &c.Metrics[i]; m.At >= during.from && m.At <= during.to {
			out[m.Process] = append(out[m.Process], m)
		}
	}
	return out
}

func median(samples []*history.Metrics, of func(*history.Metrics) int64) int64 {
	values := make([]int64, len(samples))
	for i, m := range samples {
		values[i] = of(m)
	}
	slices.Sort(values)
	return values[len(values)/2]
}

// refusals: an error response has a code and a text, and a Retry-After if a retry can
// succeed. A 409 lacks the header only where waiting is useless: no proxy matches, or
// all that match are disabled or excluded. Crawlers send only valid requests, so that
// every other error, and a 500, is a bug.
func refusals(c *checker) {
	for i := range c.Calls {
		call := &c.Calls[i]
		report := func(format string, args ...any) {
			c.report(Refusals, call.Answered, []string{string(call.Kind), call.Replica, call.LeaseID}, []int{call.Line}, format, args...)
		}
		if call.Failure == history.Odd {
			report("malformed response: %s", call.Detail)
		}
		if call.Status < 400 {
			continue
		}
		c.checked(Refusals)
		if call.Code == "" || call.Detail == "" {
			report("status %d without a code or a text", call.Status)
			continue
		}
		switch call.Status {
		case 409, 429, 503:
			if seconds, err := strconv.Atoi(call.RetryAfter); (err != nil || seconds < 1) && !hopeless(call) {
				report("status %d %s with the Retry-After %q: %s", call.Status, call.Code, call.RetryAfter, call.Detail)
			}
		case 410:
			if call.Reason == "" {
				report("status 410 without a reason")
			}
		case 404:
			if call.Code != "unknown_lease" {
				report("status 404 %s: %s", call.Code, call.Detail)
			}
		default:
			report("status %d %s: %s", call.Status, call.Code, call.Detail)
		}
	}
}

// hopeless reports whether a retry of a refused acquire is useless.
func hopeless(call *history.Call) bool {
	waiting := call.Counts["considered"] - call.Counts["disabled"] - call.Counts["excluded"]
	return call.Status == 409 && call.Counts != nil && waiting == 0
}
