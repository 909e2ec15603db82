package lease

import "math"

// UnknownLatency is the latency of a proxy without a measurement. It sorts
// behind every measured one.
const UnknownLatency int64 = math.MaxInt64

// Candidate is what stores choose by.
type Candidate struct {
	Instance
	// Proxy is "namespace/name", the last tie-break.
	Proxy string
	// MaxLeases is how many leases the instance may have at once. 0: none.
	MaxLeases int
	// LatencyMillis of the last probe that counted, or UnknownLatency.
	LatencyMillis int64
}

// Offer is what the fleet says about one Proxy. It is never changed once made.
type Offer struct {
	Candidate
	// Attributes that requests select on.
	Attributes map[string]string
	// Leasable: it may be leased as far as the fleet can tell. Others are
	// told, too, since leases may be held on them.
	Leasable bool
}

// HasAttributes reports whether every attribute of the selector is there with
// the same value. An empty selector asks for nothing.
func HasAttributes(attributes, selector map[string]string) bool {
	for k, want := range selector {
		if got, ok := attributes[k]; !ok || got != want {
			return false
		}
	}
	return true
}

// Offers is a change of the fleet.
type Offers struct {
	// Changed are Proxies that are new or differ.
	Changed []*Offer
	// Gone are the UIDs of Proxies that no longer exist.
	Gone []string
}
