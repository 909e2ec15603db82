package webhooks

import (
	"fmt"
	"strconv"
	"strings"
)

// Limit is a part of a fleet: a percentage, or a number of Proxies.
type Limit struct {
	number  int
	percent bool
}

// ParseLimit reads "20%" or "3": 1% to 100%, or a number of at least 1.
func ParseLimit(s string) (Limit, error) {
	digits, percent := strings.CutSuffix(s, "%")
	n, err := strconv.Atoi(digits)
	if err != nil || n < 1 || percent && n > 100 {
		return Limit{}, fmt.Errorf("%q is neither a percentage from 1%% to 100%% nor a number from 1 on", s)
	}
	return Limit{number: n, percent: percent}, nil
}

// of is the limit for a fleet of that size, rounded down and at least 1.
func (l Limit) of(fleet int) int {
	if !l.percent {
		return l.number
	}
	return max(1, fleet*l.number/100)
}
