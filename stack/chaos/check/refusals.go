package check

import (
	"fmt"
	"strconv"

	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/stack/chaos/history"
)

// refusals: an answer that refuses has a code and a text, and one that may be
// repeated says when. A 409 without the header is right only where waiting is no use:
// nothing matches, or all that does is switched off or excluded. Crawlers ask
// nothing that is wrong, so that every other refusal, and a 500, is our mistake.
func refusals(c *checker) {
	for i := range c.Calls {
		call := &c.Calls[i]
		if call.Failure == history.Odd {
			c.refused(call, "the answer makes no sense: "+call.Detail)
		}
		if call.Status < 400 {
			continue
		}
		c.checked(Refusals)
		if call.Code == "" || call.Detail == "" {
			c.refused(call, fmt.Sprintf("status %d without a code or a text", call.Status))
			continue
		}
		switch call.Status {
		case 409, 429, 503:
			if seconds, err := strconv.Atoi(call.RetryAfter); (err != nil || seconds < 1) && !hopeless(call) {
				c.refused(call, fmt.Sprintf("status %d %s with the Retry-After %q: %s", call.Status, call.Code, call.RetryAfter, call.Detail))
			}
		case 410:
			if call.Reason == "" {
				c.refused(call, "status 410 without a reason")
			}
		case 404:
			if call.Code != "unknown_lease" {
				c.refused(call, fmt.Sprintf("status 404 %s: %s", call.Code, call.Detail))
			}
		default:
			c.refused(call, fmt.Sprintf("status %d %s: %s", call.Status, call.Code, call.Detail))
		}
	}
}

// hopeless: nothing that a refused acquire could wait for.
func hopeless(call *history.Call) bool {
	waiting := call.Counts["considered"] - call.Counts["disabled"] - call.Counts["excluded"]
	return call.Status == 409 && call.Counts != nil && waiting == 0
}

func (c *checker) refused(call *history.Call, what string) {
	c.report(Violation{
		Promise: Refusals, At: call.Answered, Subjects: []string{string(call.Kind), call.Replica, call.LeaseID}, What: what, Lines: []int{call.Line},
	})
}
