package api

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"

	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/discovery/fleet"
	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/discovery/lease"
)

// Reasons beside those of package fleet, for what only the lease store knows.
const (
	reasonAtCapacity fleet.Reason = "AtCapacity"
	reasonCooldown   fleet.Reason = "InCooldown"
)

// How often a list that somebody waits for is looked at: not more often than the
// first, however much happens, and not less often than the second, since nothing
// wakes us when verdicts go stale.
const (
	listPause   = 250 * time.Millisecond
	listRecheck = 5 * time.Second
)

// page is a list, with the tag that is the same for as long as nothing in it
// differs but how many leases are out and what messages say. It does not change.
type page struct {
	entries []entry
	next    string // cursor of the page after; "" when there is none
	tag     string
	json    func() []byte // the list as text, made when it is first asked for
}

type entry struct {
	*rendered
	now listedNow
}

// list answers with all matching proxies, by namespace and name. None is a
// fine answer, too.
func (s *Server) list(r *http.Request) (response, error) {
	query, err := parseListQuery(r.URL.RawQuery)
	if err != nil {
		return response{}, err
	}
	known := r.Header.Get("If-None-Match")
	if query.wait > 0 && known == "" {
		return response{}, failf(codeInvalidQuery, "wait=%d waits for a change of a list that you have: send the ETag that came with it as If-None-Match", query.wait/time.Second)
	}
	p, err := s.changedPage(r.Context(), query, known)
	if err != nil {
		return response{}, err
	}
	header := http.Header{"Etag": {p.tag}, "Cache-Control": {"private, no-cache"}}
	if matchesTag(known, p.tag) {
		return response{status: http.StatusNotModified, header: header}, nil
	}
	return response{status: http.StatusOK, header: header, body: json.RawMessage(p.json())}, nil
}

// changedPage returns the list as it is now, or as it is when it has another tag
// than the client knows or the time is over that it is ready to wait.
func (s *Server) changedPage(ctx context.Context, query listQuery, known string) (*page, error) {
	deadline := s.clock.Now().Add(query.wait)
	for first := true; ; first = false {
		changed, used := s.fleet.Changed(), s.store.Changed()
		p, err := s.page(ctx, query)
		if err != nil || query.wait == 0 || !matchesTag(known, p.tag) || !s.clock.Now().Before(deadline) {
			return p, err
		}
		if first {
			ok, leave := s.seat()
			if !ok {
				return p, nil
			}
			defer leave()
			callOf(ctx).mayWait()
		}
		until := deadline
		if soon := s.clock.Now().Add(listRecheck); soon.Before(until) {
			until = soon
		}
		if !s.await(ctx, until, changed, used) || !s.await(ctx, nextLook(s.clock.Now()), nil, nil) {
			return p, nil
		}
	}
}

// nextLook is the next moment at which all who wait look, so that they share what
// they find.
func nextLook(now time.Time) time.Time {
	return now.Add(listPause - time.Duration(now.UnixNano())%listPause)
}

func (s *Server) makePage(ctx context.Context, query listQuery) (*page, error) {
	snap, err := s.fleet.Snapshot()
	if err != nil {
		return nil, err
	}
	usage, err := s.store.Usage(ctx)
	if err != nil {
		return nil, s.storeError(err)
	}
	all, err := s.gallery.of(snap)
	if err != nil {
		return nil, err
	}
	return query.page(all, snap.Freshness, usage), nil
}

// page picks the part of the list that the query asks for.
func (q listQuery) page(all []*rendered, fresh fleet.Freshness, usage lease.Usage) *page {
	p := &page{}
	sum := sha256.New()
	for _, r := range all[q.first(all):] {
		if !q.matches(r.proxy) {
			continue
		}
		now := stateOf(r.proxy, fresh, usage)
		if q.leasable != nil && *q.leasable != now.Leasable {
			continue
		}
		if n := len(p.entries); n == q.most() {
			p.next = q.cursorAfter(p.entries[n-1].proxy.Candidate.Proxy)
			break
		}
		p.entries = append(p.entries, entry{rendered: r, now: now})
		sum.Write(r.digest[:])
		sum.Write([]byte(now.NotLeasableReason))
	}
	sum.Write([]byte(p.next))
	p.tag = tagOf(sum.Sum(nil), len(p.entries))
	p.json = sync.OnceValue(p.text)
	return p
}

// text is the list, put together from what is rendered already.
func (p *page) text() []byte {
	size := 64
	for _, e := range p.entries {
		size += len(e.start) + 200
	}
	body := append(make([]byte, 0, size), `{"proxies":[`...)
	for i, e := range p.entries {
		if i > 0 {
			body = append(body, ',')
		}
		body = e.appendTo(body, e.now)
	}
	body = strconv.AppendInt(append(body, `],"count":`...), int64(len(p.entries)), 10)
	if p.next != "" {
		body = appendString(append(body, `,"nextCursor":`...), p.next)
	}
	return append(body, '}')
}

// tagOf makes a weak ETag: lists with the same one may differ in how many leases
// are out.
func tagOf(sum []byte, count int) string {
	sum = binary.BigEndian.AppendUint32(sum[:8:8], uint32(count))
	return `W/"` + hex.EncodeToString(sum) + `"`
}

// matchesTag compares the value of If-None-Match with a tag as RFC 9110, section
// 13.1.2 has it.
func matchesTag(header, tag string) bool {
	for t := range strings.SplitSeq(header, ",") {
		t = strings.TrimSpace(t)
		if t == "*" || strings.TrimPrefix(t, "W/") == strings.TrimPrefix(tag, "W/") {
			return true
		}
	}
	return false
}

func stateOf(p *fleet.Proxy, fresh fleet.Freshness, usage lease.Usage) listedNow {
	now := listedNow{ActiveLeases: usage.Active[p.Instance]}
	now.NotLeasableReason, now.NotLeasableMessage = refusal(p, fresh, usage)
	now.Leasable = now.NotLeasableReason == fleet.ReasonNone
	return now
}

// refusal says why a proxy cannot be leased now, for no target in particular.
func refusal(p *fleet.Proxy, fresh fleet.Freshness, usage lease.Usage) (fleet.Reason, string) {
	if ok, reason := fleet.Leasable(p, fresh); !ok {
		return reason, fleet.Explain(p, fresh, reason)
	}
	if until, cools := usage.CoolingUntil[p.ProxyUID]; cools {
		return reasonCooldown, fmt.Sprintf("it cools for all targets until %s", stamp(until))
	}
	if active := usage.Active[p.Instance]; active >= p.MaxLeases {
		return reasonAtCapacity, fmt.Sprintf("%d leases are out, and maxLeases is %d", active, p.MaxLeases)
	}
	return fleet.ReasonNone, ""
}

// stamp writes a time as RFC 3339 in UTC, to the millisecond below.
func stamp(t time.Time) string { return roundDown(t).Format(time.RFC3339Nano) }

func roundDown(t time.Time) time.Time { return t.UTC().Truncate(time.Millisecond) }
