package discovery

import (
	"maps"
	"net/url"
	"slices"
	"strings"

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

// listQuery are the parameters of GET /v1/proxies.
type listQuery struct {
	selector map[string]string
	healthy  *bool
}

func (q listQuery) matches(p *fleet.Proxy) bool {
	return (q.healthy == nil || *q.healthy == p.Healthy) && p.Matches(q.selector)
}

// parseListQuery refuses what it does not know: a parameter that is misspelt
// and ignored would list proxies that nobody asked for.
func parseListQuery(raw string) (listQuery, error) {
	values, err := url.ParseQuery(raw)
	if err != nil {
		return listQuery{}, failf(codeInvalidQuery, "the query does not parse: %v", err)
	}
	q := listQuery{selector: map[string]string{}}
	var unknown []string
	for _, name := range slices.Sorted(maps.Keys(values)) {
		given := values[name]
		attr, isAttr := strings.CutPrefix(name, attrPrefix)
		switch {
		case !isAttr && name != "healthy":
			unknown = append(unknown, clip(name))
		case len(given) > 1:
			return listQuery{}, failf(codeInvalidQuery, "parameter %q is given %d times; give it once", clip(name), len(given))
		case isAttr:
			q.selector[attr] = given[0]
		case given[0] == "true" || given[0] == "false":
			healthy := given[0] == "true"
			q.healthy = &healthy
		default:
			return listQuery{}, failf(codeInvalidQuery, "healthy=%s: want true or false", clip(given[0]))
		}
	}
	if len(unknown) > 0 {
		slices.Sort(unknown)
		return listQuery{}, failf(codeInvalidQuery, "unknown query parameters: %q; known are healthy and %sNAME", unknown, attrPrefix)
	}
	return q, checkSelector(codeInvalidQuery, q.selector)
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
			return failf(c, "selector attribute %q: values have at most %d characters", name, maxAttributeValue)
		}
	}
	return nil
}
