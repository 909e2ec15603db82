package api

import (
	"fmt"
	"maps"
	"math"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/api/v1alpha1"
	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/discovery/fleet"
)

// Bounds of a selector. A longer name or value can match no Proxy: the CRD has
// the same bounds.
const (
	maxSelectorEntries = 32
	maxAttributeName   = 63
	maxAttributeValue  = 128
)

// attrPrefix starts the query parameters that select on attributes.
const attrPrefix = "attr."

// maxLimit is the most entries of a page. Without a limit, all come at once.
const maxLimit = 1000

// listQuery are the parameters of GET /v1/proxies.
type listQuery struct {
	selector          map[string]string
	healthy, leasable *bool
	phase, namespace  string // "" for any
	limit             int    // 0 for none
	after             string // where the page starts; "" for the start
	wait              time.Duration
}

func (q listQuery) matches(p *fleet.Proxy) bool {
	return (q.healthy == nil || *q.healthy == p.Healthy) &&
		(q.phase == "" || q.phase == string(p.Phase)) &&
		(q.namespace == "" || q.namespace == p.Namespace) &&
		p.Matches(q.selector)
}

func (q listQuery) most() int {
	if q.limit == 0 {
		return math.MaxInt
	}
	return q.limit
}

// parameters are those that a list takes beside attr.NAME.
func parameters() []string {
	return []string{"cursor", "healthy", "leasable", "limit", "namespace", "phase", "wait"}
}

// parseListQuery refuses what it does not know: a parameter that is misspelt
// and ignored would list proxies that nobody asked for.
func parseListQuery(raw string) (listQuery, error) {
	values, err := url.ParseQuery(raw)
	if err != nil {
		return listQuery{}, failf(codeInvalidQuery, "the query does not parse: %s", clipError(err))
	}
	q := listQuery{selector: map[string]string{}}
	var unknown []string
	for _, name := range slices.Sorted(maps.Keys(values)) {
		attr, isAttr := strings.CutPrefix(name, attrPrefix)
		switch given := values[name]; {
		case !isAttr && !slices.Contains(parameters(), name):
			unknown = append(unknown, clip(name))
		case len(given) > 1:
			return listQuery{}, failf(codeInvalidQuery, "parameter %q is given %d times; give it once", clip(name), len(given))
		case isAttr:
			q.selector[attr] = given[0]
		default:
			if err := q.set(name, given[0]); err != nil {
				return listQuery{}, err
			}
		}
	}
	if len(unknown) > 0 {
		named := unknown[:min(3, len(unknown))]
		return listQuery{}, failf(codeInvalidQuery, "unknown query parameters: %q%s; known are %s and %sNAME", named, andMore(len(unknown)-len(named)), strings.Join(parameters(), ", "), attrPrefix)
	}
	if err := checkSelector(codeInvalidQuery, q.selector); err != nil {
		return listQuery{}, err
	}
	if values.Has("cursor") { // last, since it depends on all others
		q.after, err = q.parseCursor(values.Get("cursor"))
	}
	return q, err
}

func andMore(n int) string {
	if n == 0 {
		return ""
	}
	return fmt.Sprintf(" and %d more", n)
}

// set takes one parameter; the cursor is looked at when all others are known.
func (q *listQuery) set(name, value string) (err error) {
	switch name {
	case "healthy":
		q.healthy, err = parseBool(name, value)
	case "leasable":
		q.leasable, err = parseBool(name, value)
	case "phase":
		q.phase = value
		if !slices.Contains(phases(), v1alpha1.Phase(value)) {
			err = failf(codeInvalidQuery, "phase=%s: want one of %q", clip(value), phases())
		}
	case "namespace":
		q.namespace = value
		if value == "" || len(value) > maxAttributeName {
			err = failf(codeInvalidQuery, "namespace: want the name of a namespace")
		}
	case "limit":
		q.limit, err = parseNumber(name, value, 1, maxLimit)
	case "wait":
		var seconds int
		seconds, err = parseNumber(name, value, 0, int(maxWait/time.Second))
		q.wait = time.Duration(seconds) * time.Second
	}
	return err
}

// parseParameters reads a query that has none but these parameters, each at most
// once.
func parseParameters(raw string, known []string) (map[string]string, error) {
	values, err := url.ParseQuery(raw)
	if err != nil {
		return nil, failf(codeInvalidQuery, "the query does not parse: %s", clipError(err))
	}
	out := map[string]string{}
	for _, name := range slices.Sorted(maps.Keys(values)) {
		switch {
		case len(known) == 0:
			return nil, failf(codeInvalidQuery, "unknown query parameter %q; the route takes none", clip(name))
		case !slices.Contains(known, name):
			return nil, failf(codeInvalidQuery, "unknown query parameter %q; known are %s", clip(name), strings.Join(known, ", "))
		case len(values[name]) > 1:
			return nil, failf(codeInvalidQuery, "parameter %q is given %d times; give it once", clip(name), len(values[name]))
		}
		out[name] = values[name][0]
	}
	return out, nil
}

func parseBool(name, value string) (*bool, error) {
	if value != "true" && value != "false" {
		return nil, failf(codeInvalidQuery, "%s=%s: want true or false", name, clip(value))
	}
	is := value == "true"
	return &is, nil
}

func parseNumber(name, value string, least, most int) (int, error) {
	n, err := strconv.Atoi(value)
	if err != nil || n < least || n > most {
		return 0, failf(codeInvalidQuery, "%s=%s: want a whole number, %d to %d", name, clip(value), least, most)
	}
	return n, nil
}

func checkSelector(c code, selector map[string]string) error {
	if len(selector) > maxSelectorEntries {
		return failf(c, "the selector has %d attributes; at most %d are taken", len(selector), maxSelectorEntries)
	}
	for name, value := range selector {
		switch {
		case name == "":
			return failf(c, "the selector has an attribute without a name")
		case len(name) > maxAttributeName:
			return failf(c, "selector attribute %q: names have at most %d characters", clip(name), maxAttributeName)
		case len(value) > maxAttributeValue:
			return failf(c, "selector attribute %q: values have at most %d characters", clip(name), maxAttributeValue)
		}
	}
	return nil
}
