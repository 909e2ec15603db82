package api

import (
	"bytes"
	"crypto/sha256"
	"fmt"
	"strconv"
	"sync"

	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/discovery/fleet"
	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/discovery/lease"
)

// rendered is how one proxy looks in a list: what stays as long as the proxy
// does, as JSON, made once and not for every list.
type rendered struct {
	proxy  *fleet.Proxy
	start  []byte // an object without its closing brace
	digest [sha256.Size]byte
}

// listedStill are the members that stay.
type listedStill struct {
	Name          string            `json:"name"`
	Namespace     string            `json:"namespace"`
	Host          string            `json:"host"`
	Port          int32             `json:"port"`
	Attributes    map[string]string `json:"attributes"`
	Phase         string            `json:"phase"`
	Healthy       bool              `json:"healthy"`
	Reason        string            `json:"reason"`
	LatencyMillis *int64            `json:"latencyMillis,omitempty"`
	MaxLeases     int               `json:"maxLeases"`
}

// listedNow are the members that change with leases, cooldowns and time.
type listedNow struct {
	ActiveLeases       int          `json:"activeLeases"`
	Leasable           bool         `json:"leasable"`
	NotLeasableReason  fleet.Reason `json:"notLeasableReason,omitempty"`
	NotLeasableMessage string       `json:"notLeasableMessage,omitempty"`
}

func render(p *fleet.Proxy) (*rendered, error) {
	still := listedStill{
		Name: p.Name, Namespace: p.Namespace, Host: p.Host, Port: p.Port, Attributes: p.Attributes,
		Phase: string(p.Phase), Healthy: p.Healthy, Reason: p.Reason, MaxLeases: p.MaxLeases,
	}
	if p.LatencyMillis != lease.UnknownLatency {
		still.LatencyMillis = &p.LatencyMillis
	}
	text, err := encode(still)
	if err != nil {
		return nil, fmt.Errorf("render proxy %s: %w", p.Candidate.Proxy, err)
	}
	// A replaced instance may look the same and is another one.
	identity := fmt.Sprintf("%s %s ", p.ProxyUID, p.Instance.ID)
	return &rendered{
		proxy:  p,
		start:  bytes.TrimSuffix(bytes.TrimSpace(text), []byte("}")),
		digest: sha256.Sum256(append([]byte(identity), text...)),
	}, nil
}

// appendTo completes the object.
func (r *rendered) appendTo(out []byte, now listedNow) []byte {
	out = append(out, r.start...)
	out = append(out, `,"activeLeases":`...)
	out = strconv.AppendInt(out, int64(now.ActiveLeases), 10)
	if now.Leasable {
		return append(out, `,"leasable":true}`...)
	}
	out = append(out, `,"leasable":false,"notLeasableReason":`...)
	out = appendString(out, string(now.NotLeasableReason))
	out = append(out, `,"notLeasableMessage":`...)
	return append(appendString(out, now.NotLeasableMessage), '}')
}

func appendString(out []byte, s string) []byte {
	text, err := encode(s)
	if err != nil { // strings always encode
		return append(out, `""`...)
	}
	return append(out, bytes.TrimSpace(text)...)
}

// gallery holds the fleet as it was rendered last, in the fleet's order.
type gallery struct {
	mu   sync.Mutex
	list []*rendered
}

// of returns the snapshot's proxies, of which only those are rendered that are
// new: proxies never change once made.
func (g *gallery) of(snap fleet.Snapshot) ([]*rendered, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.shows(snap.Proxies) {
		return g.list, nil
	}
	old := g.list
	list := make([]*rendered, 0, len(snap.Proxies))
	for _, p := range snap.Proxies {
		for len(old) > 0 && old[0].proxy.Candidate.Proxy < p.Candidate.Proxy {
			old = old[1:]
		}
		if len(old) > 0 && old[0].proxy == p {
			list = append(list, old[0])
			continue
		}
		r, err := render(p)
		if err != nil {
			return nil, err
		}
		list = append(list, r)
	}
	g.list = list
	return list, nil
}

// shows reports whether nothing has changed since.
func (g *gallery) shows(proxies []*fleet.Proxy) bool {
	if len(g.list) != len(proxies) {
		return false
	}
	for i, p := range proxies {
		if g.list[i].proxy != p {
			return false
		}
	}
	return true
}
