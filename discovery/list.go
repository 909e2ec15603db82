package discovery

import (
	"fmt"
	"net/http"
	"time"

	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/discovery/fleet"
	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/discovery/lease"
)

// Reasons beside those of package fleet, for what only the lease store knows.
const (
	reasonAtCapacity fleet.Reason = "AtCapacity"
	reasonCooldown   fleet.Reason = "InCooldown"
)

// listBody is the answer to GET /v1/proxies.
type listBody struct {
	Proxies []listedProxy `json:"proxies"`
	Count   int           `json:"count"`
}

type listedProxy struct {
	Name               string            `json:"name"`
	Namespace          string            `json:"namespace"`
	Host               string            `json:"host"`
	Port               int32             `json:"port"`
	Attributes         map[string]string `json:"attributes"`
	Phase              string            `json:"phase"`
	Healthy            bool              `json:"healthy"`
	Reason             string            `json:"reason"`
	LatencyMillis      *int64            `json:"latencyMillis,omitempty"`
	ActiveLeases       int               `json:"activeLeases"`
	MaxLeases          int               `json:"maxLeases"`
	Leasable           bool              `json:"leasable"`
	NotLeasableReason  fleet.Reason      `json:"notLeasableReason,omitempty"`
	NotLeasableMessage string            `json:"notLeasableMessage,omitempty"`
}

// list answers with all matching proxies, by namespace and name. None is a
// fine answer, too.
func (s *Server) list(r *http.Request) (response, error) {
	query, err := parseListQuery(r.URL.RawQuery)
	if err != nil {
		return response{}, err
	}
	snap, err := s.fleet.Snapshot()
	if err != nil {
		return response{}, err
	}
	usage, err := s.store.Usage(r.Context())
	if err != nil {
		return response{}, storeError(err)
	}
	proxies := []listedProxy{}
	for _, p := range snap.Proxies {
		if query.matches(p) {
			proxies = append(proxies, listed(p, snap.Freshness, usage))
		}
	}
	return response{status: http.StatusOK, body: listBody{Proxies: proxies, Count: len(proxies)}}, nil
}

func listed(p *fleet.Proxy, fresh fleet.Freshness, usage lease.Usage) listedProxy {
	out := listedProxy{
		Name:         p.Name,
		Namespace:    p.Namespace,
		Host:         p.Host,
		Port:         p.Port,
		Attributes:   p.Attributes,
		Phase:        string(p.Phase),
		Healthy:      p.Healthy,
		Reason:       p.Reason,
		ActiveLeases: usage.Active[p.Instance],
		MaxLeases:    p.MaxLeases,
	}
	if p.LatencyMillis != lease.UnknownLatency {
		out.LatencyMillis = &p.LatencyMillis
	}
	out.NotLeasableReason, out.NotLeasableMessage = refusal(p, fresh, usage)
	out.Leasable = out.NotLeasableReason == fleet.ReasonNone
	return out
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
