package check

import (
	"strconv"

	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/stack/chaos/history"
)

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
