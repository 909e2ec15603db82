package lease

import (
	"cmp"
	"math"
	"math/bits"
)

// UnknownLatency is the latency of a proxy without a measurement. It sorts after
// every measured one.
const UnknownLatency int64 = math.MaxInt64

// Candidate is what stores choose by.
type Candidate struct {
	Instance
	// Proxy is "namespace/name", the last tie-break.
	Proxy string
	// MaxLeases is the number of slots of the instance. 0: it is not leased.
	MaxLeases int
	// LatencyMillis of the last probe that counted, or UnknownLatency.
	LatencyMillis int64
	// Scheme of the proxy's URL, such as http.
	Scheme string
}

// Offer is the state of one Proxy in the fleet. It is immutable.
type Offer struct {
	Candidate
	// Attributes that requests select on.
	Attributes map[string]string
	// Leasable: the fleet allows leases on it. Stores need the other Proxies, too,
	// since leases may be active on them.
	Leasable bool
}

// HasAttributes reports whether the attributes contain the whole selector. An empty
// selector matches everything.
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

// Standing is a candidate with its state in a store.
type Standing struct {
	*Candidate
	// Active is the number of active leases on the instance.
	Active int
	// LastGrant is the fencing token of the last lease granted on the Proxy, 0
	// when the store knows of none. It may be lost in a restart.
	LastGrant uint64
}

// Compare orders candidates by preference: fewest active leases, then least recently
// granted, then latency, then name. It is negative when a is preferred to b.
//
// Whatever ranks above least recently granted is a strict order ahead of fairness:
// clients that release each lease before they acquire the next would get the same
// proxy for ever. So latency and name decide only between proxies that were never
// granted. Latencies within a factor of two are equal (LatencyClass).
func Compare(a, b Standing) int {
	return cmp.Or(
		cmp.Compare(a.Active, b.Active),
		cmp.Compare(a.LastGrant, b.LastGrant),
		cmp.Compare(LatencyClass(a.LatencyMillis), LatencyClass(b.LatencyMillis)),
		cmp.Compare(a.Proxy, b.Proxy),
		cmp.Compare(a.ProxyUID, b.ProxyUID),
	)
}

// LatencyClass is 0 for 0 ms, 1 for 1 ms, and one more for each doubling: 2 and
// 3 ms, 4 to 7 ms and so on. UnknownLatency has the last class, 63.
func LatencyClass(millis int64) int { return bits.Len64(uint64(max(0, millis))) }
