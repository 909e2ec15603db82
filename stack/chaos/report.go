package chaos

import (
	"cmp"
	"fmt"
	"io"
	"maps"
	"net/http"
	"slices"
	"strings"

	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/stack/chaos/check"
	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/stack/chaos/history"
)

// shown is how many violations of one promise are printed; all are counted.
const shown = 8

// tally prints how often each kind of step was done.
func (c *campaign) tally() {
	c.print("\nFaults and user actions (%d more were skipped: their subject was away, or earlier ones took too long):\n", c.player.skipped)
	for _, kind := range slices.Sorted(maps.Keys(c.player.tally)) {
		c.print("  %5d  %s", c.player.tally[kind], kind)
	}
}

// report prints the responses that crawlers got, and the result.
func report(h *history.History, r *check.Result, out io.Writer) {
	crawlersSaw(h, out)
	fmt.Fprintf(out, "\n%s\n\n%s\n", starvation(h), r.Table())
	violations("broken", r.Violations, out)
	violations("excused", r.Excused, out)
}

func violations(what string, all []check.Violation, out io.Writer) {
	seen := map[check.Promise]int{}
	for _, x := range all {
		if seen[x.Promise]++; seen[x.Promise] <= shown {
			fmt.Fprintf(out, "%s: %s\n", what, x)
		}
	}
	for _, promise := range check.Promises() {
		if n := seen[promise]; n > shown {
			fmt.Fprintf(out, "%s: %d more of: %s\n", what, n-shown, promise)
		}
	}
}

// crawlersSaw prints how often crawlers got each kind of response.
func crawlersSaw(h *history.History, out io.Writer) {
	counts := map[string]int{}
	for _, call := range h.Calls {
		answer := cmp.Or(call.Reason, call.Code, string(call.Failure))
		if call.Status != 0 {
			answer = strings.TrimSpace(fmt.Sprintf("%d %s", call.Status, answer))
		}
		counts[fmt.Sprintf("%s %s: %s", call.Domain, call.Kind, answer)]++
	}
	fmt.Fprintf(out, "\nCrawlers:\n\n")
	for _, what := range slices.Sorted(maps.Keys(counts)) {
		fmt.Fprintf(out, "  %6d  %s\n", counts[what], what)
	}
	succeeded := 0
	for _, crawl := range h.Crawls {
		if crawl.OK {
			succeeded++
		}
	}
	fmt.Fprintf(out, "  %6d  crawls through proxies succeeded, of %d\n", succeeded, len(h.Crawls))
}

// starvation counts the granted leases and describes how starved of CPU the machine was.
func starvation(h *history.History) string {
	leases := 0
	for _, call := range h.Calls {
		if call.Kind == history.Acquire && call.Status == http.StatusCreated {
			leases++
		}
	}
	var over, waited, late float64
	for _, p := range h.Pressure {
		if p.Waited >= 0 {
			over, waited = over+p.Over.Seconds(), waited+p.Waited.Seconds()
		}
		late = max(late, p.Late.Seconds())
	}
	if over == 0 {
		return fmt.Sprintf("%d leases. The CPU pressure is not known.", leases)
	}
	return fmt.Sprintf("%d leases. Tasks waited for a CPU %.0f %% of the time; the latest timer was %.2fs late.", leases, 100*waited/over, late)
}
