package api

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"net/http"
	"sort"
	"strconv"
	"strings"
	"sync"
	"time"

	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/discovery/fleet"
	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/discovery/lease"
	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/internal/httpapi"
)

// Reasons beside those of package fleet, from the lease store.
const (
	reasonAtCapacity fleet.Reason = "AtCapacity"
	reasonCooldown   fleet.Reason = "InCooldown"
)

// A waiting list request compares its list again after a change, but at most once in
// listPause, and at least once in listRecheck, since no event announces that a verdict
// has become stale.
const (
	listPause   = 250 * time.Millisecond
	listRecheck = 5 * time.Second
)

// page is an immutable list. Its ETag ignores the numbers of active leases and the
// texts of messages.
type page struct {
	proxies []pageProxy
	next    string // cursor of the next page; "" when there is none
	tag     string
	json    func() []byte // encodes the list once, when it is first needed
}

// pageProxy is a proxy of a page.
type pageProxy struct {
	*renderedProxy
	live listedLive
}

// list lists all matching proxies, by namespace and name. There may be none.
func (s *Server) list(r *http.Request) (httpapi.Response, error) {
	query, err := parseListQuery(r.URL.RawQuery)
	if err != nil {
		return httpapi.Response{}, err
	}
	known := r.Header.Get("If-None-Match")
	if query.wait > 0 && known == "" {
		return httpapi.Response{}, failf(codeInvalidQuery, "wait=%d waits for a change of a list that you have: send its ETag as If-None-Match", query.wait/time.Second)
	}
	p, err := s.changedPage(r.Context(), query, known)
	if err != nil {
		return httpapi.Response{}, err
	}
	header := http.Header{"Etag": {p.tag}, "Cache-Control": {"private, no-cache"}}
	if matchesTag(known, p.tag) {
		return httpapi.Response{Status: http.StatusNotModified, Header: header}, nil
	}
	return httpapi.Response{Status: http.StatusOK, Header: header, Body: p.json()}, nil
}

// changedPage returns the list as soon as its tag is none of known, or when the
// query's wait is over.
func (s *Server) changedPage(ctx context.Context, query listQuery, known string) (*page, error) {
	deadline := s.cfg.Clock.Now().Add(query.wait)
	for first := true; ; first = false {
		changed, used := s.cfg.Fleet.Changed(), s.cfg.Store.Changed()
		p, err := s.page(ctx, query)
		if err != nil || query.wait == 0 || !matchesTag(known, p.tag) || !s.cfg.Clock.Now().Before(deadline) {
			return p, err
		}
		if first {
			ok, leave := s.takeWaitSlot(ctx)
			if !ok {
				return p, nil
			}
			defer leave()
		}
		until := deadline
		if soon := s.cfg.Clock.Now().Add(listRecheck); soon.Before(until) {
			until = soon
		}
		if !s.await(ctx, until, changed, used) || !s.await(ctx, nextPoll(s.cfg.Clock.Now()), nil, nil) {
			return p, nil
		}
	}
}

// nextPoll is the next moment at which all waiting requests compare their lists, so
// that they share one page.
func nextPoll(now time.Time) time.Time {
	return now.Add(listPause - time.Duration(now.UnixNano())%listPause)
}

func (s *Server) makePage(ctx context.Context, query listQuery) (*page, error) {
	snap, err := s.cfg.Fleet.Snapshot()
	if err != nil {
		return nil, err
	}
	usage, err := s.cfg.Store.Usage(ctx)
	if err != nil {
		return nil, s.storeError(err)
	}
	all, err := s.rendered.get(snap)
	if err != nil {
		return nil, err
	}
	return query.page(all, snap.Freshness, usage), nil
}

// page selects the proxies of the query.
func (q listQuery) page(all []*renderedProxy, fresh fleet.Freshness, usage lease.Usage) *page {
	p := &page{}
	sum := sha256.New()
	start := 0
	if q.after != "" {
		start = sort.Search(len(all), func(i int) bool { return all[i].proxy.Candidate.Proxy > q.after })
	}
	for _, r := range all[start:] {
		if !q.matches(r.proxy) {
			continue
		}
		live := liveState(r.proxy, fresh, usage)
		if q.leasable != nil && *q.leasable != live.Leasable {
			continue
		}
		if n := len(p.proxies); n == q.most() {
			p.next = q.cursorAfter(p.proxies[n-1].proxy.Candidate.Proxy)
			break
		}
		p.proxies = append(p.proxies, pageProxy{renderedProxy: r, live: live})
		sum.Write(r.digest[:])
		sum.Write([]byte(live.NotLeasableReason))
	}
	sum.Write([]byte(p.next))
	p.tag = tagOf(sum.Sum(nil), len(p.proxies))
	p.json = sync.OnceValue(p.text)
	return p
}

// text encodes the list from its rendered proxies.
func (p *page) text() []byte {
	size := 64
	for _, e := range p.proxies {
		size += len(e.start) + 200
	}
	body := append(make([]byte, 0, size), `{"proxies":[`...)
	for i, e := range p.proxies {
		if i > 0 {
			body = append(body, ',')
		}
		body = e.appendTo(body, e.live)
	}
	body = strconv.AppendInt(append(body, `],"count":`...), int64(len(p.proxies)), 10)
	if p.next != "" {
		body = appendString(append(body, `,"nextCursor":`...), p.next)
	}
	return append(body, '}')
}

// tagOf makes a weak ETag: lists with the same one may differ in their numbers of
// active leases.
func tagOf(sum []byte, count int) string {
	sum = binary.BigEndian.AppendUint32(sum[:8:8], uint32(count))
	return `W/"` + hex.EncodeToString(sum) + `"`
}

// matchesTag compares If-None-Match with a tag as in RFC 9110, section 13.1.2.
func matchesTag(header, tag string) bool {
	for t := range strings.SplitSeq(header, ",") {
		t = strings.TrimSpace(t)
		if t == "*" || strings.TrimPrefix(t, "W/") == strings.TrimPrefix(tag, "W/") {
			return true
		}
	}
	return false
}

func liveState(p *fleet.Proxy, fresh fleet.Freshness, usage lease.Usage) listedLive {
	live := listedLive{ActiveLeases: usage.Active[p.Instance]}
	live.NotLeasableReason, live.NotLeasableMessage = notLeasable(p, fresh, usage)
	live.Leasable = live.NotLeasableReason == fleet.ReasonNone
	return live
}

// notLeasable is why a proxy cannot be leased now, for no target in particular.
func notLeasable(p *fleet.Proxy, fresh fleet.Freshness, usage lease.Usage) (fleet.Reason, string) {
	if ok, reason := fleet.Leasable(p, fresh); !ok {
		return reason, fleet.Explain(p, fresh, reason)
	}
	if until, cools := usage.CoolingUntil[p.ProxyUID]; cools {
		return reasonCooldown, fmt.Sprintf("it is in cooldown for all targets until %s", stamp(until))
	}
	if active := usage.Active[p.Instance]; active >= p.MaxLeases {
		return reasonAtCapacity, fmt.Sprintf("%d leases are active, and maxLeases is %d", active, p.MaxLeases)
	}
	return fleet.ReasonNone, ""
}

// stamp formats a time as RFC 3339 in UTC, rounded down to milliseconds.
func stamp(t time.Time) string { return roundDown(t).Format(time.RFC3339Nano) }

func roundDown(t time.Time) time.Time { return t.UTC().Truncate(time.Millisecond) }
