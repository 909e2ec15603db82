package api

import (
	"bytes"
	"crypto/sha256"
	"fmt"
	"strconv"
	"sync"

	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/discovery/fleet"
	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/discovery/lease"
	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/internal/httpapi"
)

// listedFixed are the members of a listed proxy that change only with the Proxy.
type listedFixed struct {
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

// listedLive are the members that change with leases, cooldowns and time.
type listedLive struct {
	ActiveLeases       int          `json:"activeLeases"`
	Leasable           bool         `json:"leasable"`
	NotLeasableReason  fleet.Reason `json:"notLeasableReason,omitempty"`
	NotLeasableMessage string       `json:"notLeasableMessage,omitempty"`
}

// renderedProxy is the encoded fixed part of a proxy.
type renderedProxy struct {
	proxy  *fleet.Proxy
	start  []byte // an object without its closing brace
	digest [sha256.Size]byte
}

func render(p *fleet.Proxy) (*renderedProxy, error) {
	fixed := listedFixed{
		Name: p.Name, Namespace: p.Namespace, Host: p.Host, Port: p.Port, Attributes: p.Attributes,
		Phase: string(p.Phase), Healthy: p.Healthy, Reason: p.Reason, MaxLeases: p.MaxLeases,
	}
	if p.LatencyMillis != lease.UnknownLatency {
		fixed.LatencyMillis = &p.LatencyMillis
	}
	text, err := httpapi.Encode(fixed)
	if err != nil {
		return nil, fmt.Errorf("render proxy %s: %w", p.Candidate.Proxy, err)
	}
	// The digest has the identity, since a replacement may have the same text.
	identity := fmt.Sprintf("%s %s ", p.ProxyUID, p.Instance.ID)
	return &renderedProxy{
		proxy:  p,
		start:  bytes.TrimSuffix(bytes.TrimSpace(text), []byte("}")),
		digest: sha256.Sum256(append([]byte(identity), text...)),
	}, nil
}

// appendTo completes the object.
func (r *renderedProxy) appendTo(out []byte, live listedLive) []byte {
	out = append(out, r.start...)
	out = append(out, `,"activeLeases":`...)
	out = strconv.AppendInt(out, int64(live.ActiveLeases), 10)
	if live.Leasable {
		return append(out, `,"leasable":true}`...)
	}
	out = append(out, `,"leasable":false,"notLeasableReason":`...)
	out = appendString(out, string(live.NotLeasableReason))
	out = append(out, `,"notLeasableMessage":`...)
	return append(appendString(out, live.NotLeasableMessage), '}')
}

func appendString(out []byte, s string) []byte {
	text, _ := httpapi.Encode(s) // strings always encode
	return append(out, bytes.TrimSpace(text)...)
}

// renderCache has the last list in its encoded form, so that a new list encodes only
// the proxies that have changed.
type renderCache struct {
	mu     sync.Mutex
	source []*fleet.Proxy // of list
	list   []*renderedProxy
}

// get returns the snapshot's proxies in their order. It re-uses the rendered form of
// a pointer that it has, since proxies are immutable.
func (c *renderCache) get(snap fleet.Snapshot) ([]*renderedProxy, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if sameList(c.source, snap.Proxies) {
		return c.list, nil
	}
	old, list := c.list, make([]*renderedProxy, len(snap.Proxies))
	for i, p := range snap.Proxies {
		for len(old) > 0 && old[0].proxy.Candidate.Proxy < p.Candidate.Proxy {
			old = old[1:]
		}
		if len(old) > 0 && old[0].proxy == p {
			list[i] = old[0]
			continue
		}
		var err error
		if list[i], err = render(p); err != nil {
			return nil, err
		}
	}
	c.source, c.list = snap.Proxies, list
	return list, nil
}
