package api

import (
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
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

// Bounds of a selector, the same as those of the CRD: a longer name or value matches
// no Proxy.
const (
	maxSelectorEntries = 32
	maxAttributeName   = 63
	maxAttributeValue  = 128
)

// attrPrefix starts the query parameters that select on attributes.
const attrPrefix = "attr."

// maxLimit is the largest page. Without a limit the list is one page.
const maxLimit = 1000

// listQuery are the parameters of GET /v1/proxies.
type listQuery struct {
	selector          map[string]string
	healthy, leasable *bool
	phase, namespace  string // "" for any
	limit             int    // 0 for none
	after             string // "namespace/name" before the first of the page; "" for the first page
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

// listParameters are the parameters of a list beside attr.NAME.
var listParameters = []string{"cursor", "healthy", "leasable", "limit", "namespace", "phase", "wait"}

// parseListQuery refuses unknown parameters: a misspelt filter that is ignored
// would list proxies that the client did not ask for.
func parseListQuery(raw string) (listQuery, error) {
	q := listQuery{selector: map[string]string{}}
	values, err := parseParameters(raw, listParameters, q.selector)
	if err != nil {
		return listQuery{}, err
	}
	for _, name := range slices.Sorted(maps.Keys(values)) {
		if err := q.set(name, values[name]); err != nil {
			return listQuery{}, err
		}
	}
	if err := checkSelector(codeInvalidQuery, q.selector); err != nil {
		return listQuery{}, err
	}
	if cursor, given := values["cursor"]; given { // last, since it depends on the filters
		q.after, err = q.parseCursor(cursor)
	}
	return q, err
}

// set takes one parameter; the cursor is parsed after all others.
func (q *listQuery) set(name, value string) (err error) {
	switch name {
	case "healthy":
		q.healthy, err = parseBool(name, value)
	case "leasable":
		q.leasable, err = parseBool(name, value)
	case "phase":
		q.phase = value
		if !slices.Contains(phases, v1alpha1.Phase(value)) {
			err = failf(codeInvalidQuery, "phase=%s: want one of %q", clip(value), phases)
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

// filters are equal for queries that select the same proxies. fmt prints maps in
// the order of their keys.
func (q listQuery) filters() string {
	either := func(b *bool) string {
		if b == nil {
			return "any"
		}
		return fmt.Sprint(*b)
	}
	return fmt.Sprintf("%q %s %s %q %q", q.selector, either(q.healthy), either(q.leasable), q.phase, q.namespace)
}

// key is equal for queries with the same page. The wait makes no difference.
func (q listQuery) key() string { return fmt.Sprintf("%s %d %q", q.filters(), q.limit, q.after) }

// cursorAfter returns the cursor of the page that starts after a proxy.
func (q listQuery) cursorAfter(proxy string) string { return newCursor(q.filters(), proxy) }

// parseCursor returns the proxy that the page starts after.
func (q listQuery) parseCursor(cursor string) (string, error) {
	after, err := openCursor(q.filters(), cursor)
	if err == nil && !strings.Contains(after, "/") {
		err = errBadCursor()
	}
	return after, err
}

// parseParameters reads a query string of known parameters, each at most once. Those
// with attrPrefix go into selector, unless that is nil.
func parseParameters(raw string, known []string, selector map[string]string) (map[string]string, error) {
	values, err := url.ParseQuery(raw)
	if err != nil {
		return nil, failf(codeInvalidQuery, "the query does not parse: %s", clipError(err))
	}
	out := map[string]string{}
	var unknown []string
	for _, name := range slices.Sorted(maps.Keys(values)) {
		attr, isAttr := strings.CutPrefix(name, attrPrefix)
		isAttr = isAttr && selector != nil
		switch given := values[name]; {
		case !isAttr && !slices.Contains(known, name):
			unknown = append(unknown, clip(name))
		case len(given) > 1:
			return nil, failf(codeInvalidQuery, "parameter %q is given %d times; give it once", clip(name), len(given))
		case isAttr:
			selector[attr] = given[0]
		default:
			out[name] = given[0]
		}
	}
	if len(unknown) == 0 {
		return out, nil
	}
	more, takes := "", "known are "+strings.Join(known, ", ")
	if n := len(unknown) - 3; n > 0 {
		unknown, more = unknown[:3], fmt.Sprintf(" and %d more", n)
	}
	if selector != nil {
		takes += " and " + attrPrefix + "NAME"
	} else if len(known) == 0 {
		takes = "the route takes none"
	}
	return nil, failf(codeInvalidQuery, "unknown query parameters: %q%s; %s", unknown, more, takes)
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
		return failf(c, "the selector has %d attributes; at most %d are allowed", len(selector), maxSelectorEntries)
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

// A cursor is the position after the last item of a page, whether or not that item
// still exists, so that pages neither skip nor repeat an item that was there all the
// time. It has a version and a digest of the query's filters.

// cursorVersion changes when cursors get another meaning.
const cursorVersion = "1"

// maxCursor is longer than any cursor of ours.
const maxCursor = 1024

func errBadCursor() error {
	return failf(codeInvalidQuery, "cursor: it is not from a list; start without a cursor")
}

// newCursor returns the cursor of the page that starts after a position.
func newCursor(filters, after string) string {
	return base64.RawURLEncoding.EncodeToString([]byte(cursorVersion + " " + digest(filters) + " " + after))
}

// openCursor returns the position of a cursor of a query with the same filters.
func openCursor(filters, cursor string) (after string, err error) {
	if cursor == "" || len(cursor) > maxCursor {
		return "", errBadCursor()
	}
	text, err := base64.RawURLEncoding.DecodeString(cursor)
	parts := strings.SplitN(string(text), " ", 3)
	switch {
	case err != nil || len(parts) != 3 || parts[0] != cursorVersion:
		return "", errBadCursor()
	case parts[1] != digest(filters):
		return "", failf(codeInvalidQuery, "cursor: it belongs to a list with other filters; keep them from page to page, or start without a cursor")
	}
	return parts[2], nil
}

func digest(filters string) string {
	sum := sha256.Sum256([]byte(filters))
	return hex.EncodeToString(sum[:6])
}
