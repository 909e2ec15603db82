package check

import (
	"cmp"
	"fmt"
	"slices"

	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/stack/chaos/history"
)

// fencing: in one domain no two leases have one token, a lease keeps its token, and
// a grant that was asked for after another was answered has the larger one.
func fencing(c *checker) {
	holders := map[string]*leaseTimeline{}
	byDomain := map[string][]*leaseTimeline{}
	for _, l := range c.sortedLeases() {
		c.checked(Fencing)
		byDomain[l.domain] = append(byDomain[l.domain], l)
		token := fmt.Sprintf("%s\x00%d", l.domain, l.grant.FencingToken)
		if other := holders[token]; other != nil {
			c.report(Violation{
				Promise: Fencing, At: l.grant.Answered, Subjects: []string{l.grant.Proxy, l.domain, l.id, other.id},
				What:  fmt.Sprintf("token %d was given twice", l.grant.FencingToken),
				Lines: []int{other.grant.Line, l.grant.Line},
			})
		}
		holders[token] = l
		c.keepsToken(l)
	}
	for _, leases := range byDomain {
		c.tokensGrow(leases)
	}
}

func (c *checker) keepsToken(l *leaseTimeline) {
	for _, call := range l.calls {
		if !acknowledged(call) {
			continue
		}
		other := call.FencingToken != l.grant.FencingToken
		shared := granted(call) && call != l.grant && (call.Key == "" || call.Key != l.grant.Key)
		if !other && !shared {
			continue
		}
		what := "the lease was granted to two requests"
		if other {
			what = fmt.Sprintf("its token was %d and is %d", l.grant.FencingToken, call.FencingToken)
		}
		c.report(Violation{
			Promise: Fencing, At: call.Answered, Subjects: []string{l.grant.Proxy, l.domain, l.id},
			What: what, Lines: []int{l.grant.Line, call.Line},
		})
	}
}

// tokensGrow takes leases in the order of earliest.
func (c *checker) tokensGrow(leases []*leaseTimeline) {
	answered := slices.Clone(leases)
	slices.SortFunc(answered, func(a, b *leaseTimeline) int { return cmp.Compare(a.grant.Answered, b.grant.Answered) })
	var largest *history.Call
	next := 0
	for _, l := range leases {
		for ; next < len(answered) && answered[next].grant.Answered < l.earliest; next++ {
			if g := answered[next].grant; largest == nil || g.FencingToken > largest.FencingToken {
				largest = g
			}
		}
		if largest != nil && l.grant.FencingToken < largest.FencingToken {
			c.report(Violation{
				Promise: Fencing, At: l.grant.Answered, Subjects: []string{l.grant.Proxy, l.domain, l.id},
				What:  fmt.Sprintf("token %d was given after %d", l.grant.FencingToken, largest.FencingToken),
				Lines: []int{largest.Line, l.grant.Line},
			})
		}
	}
}
