package check

import (
	"fmt"
	"slices"

	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/stack/chaos/history"
)

// figure is one that must not grow.
type figure struct {
	name string
	of   func(*history.Metrics) int64
	// A process may have factor times what it had, and extra more.
	factor float64
	extra  int64
}

// figures with what they may differ by. The end is measured without load and the
// baseline under it, so that all of it is for what rests:
//   - goroutines and descriptors: watches and kept connections, of which a restart of
//     a peer can leave a few more or fewer, so a fifth and 16;
//   - heap: Go's collector lets it grow to twice what is in use before it collects,
//     and 16 MiB are its own;
//   - RSS: pages that were in use once go back to the kernel over minutes;
//   - series: an outcome, code or reason that is seen for the first time is a new
//     series that stays; there are a few dozen of them, and 3 to 14 series of a
//     histogram for each. Per Proxy there is none.
func figures() []figure {
	return []figure{
		{"goroutines", func(m *history.Metrics) int64 { return int64(m.Goroutines) }, 1.2, 16},
		{"open descriptors", func(m *history.Metrics) int64 { return int64(m.FDs) }, 1.2, 16},
		{"heap bytes in use", func(m *history.Metrics) int64 { return m.Heap }, 2, 16 << 20},
		{"bytes of RSS", func(m *history.Metrics) int64 { return m.RSS }, 2, 48 << 20},
		{"series", func(m *history.Metrics) int64 { return int64(m.Series) }, 1.5, 100},
	}
}

// resources: at the end each process has what it had in the baseline, by the median
// of the samples of each. A process that was started anew since is held to the
// baseline of the one before it.
func resources(c *checker) {
	baseline, ok := c.begins[history.StageBaseline]
	settled, ended := c.begins[history.StageSettled]
	if !ok || !ended {
		return
	}
	before, after := c.samples(baseline), c.samples(settled)
	for process, now := range after {
		then := before[process]
		if len(then) == 0 {
			continue
		}
		for _, f := range figures() {
			was, is := median(then, f.of), median(now, f.of)
			if was < 0 || is < 0 {
				continue
			}
			c.checked(Resources)
			if most := int64(float64(was)*f.factor) + f.extra; is > most {
				last := now[len(now)-1]
				c.report(Violation{
					Promise: Resources, At: last.At, Subjects: []string{process}, Lines: []int{then[0].Line, last.Line},
					What: fmt.Sprintf("%s: %d in the baseline, %d at the end, and at most %d are fine", f.name, was, is, most),
				})
			}
		}
	}
	for process, then := range before {
		if len(after[process]) == 0 {
			c.report(Violation{
				Promise: Resources, At: settled.to, Subjects: []string{process}, Lines: []int{then[0].Line},
				What: "it was measured in the baseline and not at the end: does it run?",
			})
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
