package lease

import (
	"cmp"
	"math/bits"
)

// Standing is a candidate with what a store knows of it.
type Standing struct {
	*Candidate
	// Active is the number of leases that run on the instance.
	Active int
	// LastGrant is the fencing token of the last lease granted on the Proxy,
	// 0 when there was none that the store remembers. Restarts may forget it.
	LastGrant uint64
}

// Compare orders candidates by preference: fewest running leases, then
// latency, then name. It is negative when a is preferred to b.
//
// Latencies within a factor of two count as the same (LatencyClass), and among
// those the proxy that was granted longest ago comes before the name. Without
// that, clients that give each lease back before they ask for the next would
// all get the same proxy for ever: at that moment none has any lease.
func Compare(a, b Standing) int {
	return cmp.Or(
		cmp.Compare(a.Active, b.Active),
		cmp.Compare(LatencyClass(a.LatencyMillis), LatencyClass(b.LatencyMillis)),
		cmp.Compare(a.LastGrant, b.LastGrant),
		cmp.Compare(a.Proxy, b.Proxy),
		cmp.Compare(a.ProxyUID, b.ProxyUID),
	)
}

// LatencyClass is 0 for 0 ms, 1 for 1 ms, and one more for each doubling: 2 and
// 3 ms, 4 to 7 ms and so on. UnknownLatency has the last class, 63.
func LatencyClass(millis int64) int { return bits.Len64(uint64(max(0, millis))) }
