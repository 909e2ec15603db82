package api

import (
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"sort"
	"strings"
)

// maxCursor is more than any cursor of ours has.
const maxCursor = 1024

// cursorVersion is for the day on which cursors mean something else.
const cursorVersion = "1"

// A cursor is where the next page starts: after the proxy that the last one
// ended with, whether or not that still exists, so that pages neither skip nor
// repeat a proxy that was there all the time. It is bound to its filters.

// cursorAfter returns the cursor of the page that starts after a proxy.
func (q listQuery) cursorAfter(proxy string) string {
	return base64.RawURLEncoding.EncodeToString([]byte(cursorVersion + " " + q.filters() + " " + proxy))
}

// parseCursor returns the proxy that the page starts after.
func (q listQuery) parseCursor(cursor string) (string, error) {
	bad := failf(codeInvalidQuery, "cursor: it is not one that a list gave out; start without a cursor")
	if cursor == "" || len(cursor) > maxCursor {
		return "", bad
	}
	text, err := base64.RawURLEncoding.DecodeString(cursor)
	if err != nil {
		return "", bad
	}
	parts := strings.SplitN(string(text), " ", 3)
	switch {
	case len(parts) != 3 || parts[0] != cursorVersion || !strings.Contains(parts[2], "/"):
		return "", bad
	case parts[1] != q.filters():
		return "", failf(codeInvalidQuery, "cursor: it belongs to a list with other filters; keep them from page to page, or start without a cursor")
	}
	return parts[2], nil
}

// filters names what the list is filtered by; limit, cursor and wait are none.
func (q listQuery) filters() string {
	healthy, leasable := "any", "any"
	if q.healthy != nil {
		healthy = fmt.Sprint(*q.healthy)
	}
	if q.leasable != nil {
		leasable = fmt.Sprint(*q.leasable)
	}
	// fmt prints maps in the order of their keys.
	sum := sha256.Sum256(fmt.Appendf(nil, "%q %s %s %q %q", q.selector, healthy, leasable, q.phase, q.namespace))
	return hex.EncodeToString(sum[:6])
}

// first is the place of the first proxy of the page in the whole list.
func (q listQuery) first(all []*rendered) int {
	if q.after == "" {
		return 0
	}
	return sort.Search(len(all), func(i int) bool { return all[i].proxy.Candidate.Proxy > q.after })
}
