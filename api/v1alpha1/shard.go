package v1alpha1

import (
	"fmt"
	"hash/fnv"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/types"
)

// Shard is the part of the fleet, Index of Count, that one prober probes.
type Shard struct {
	// Index counts from 0 to Count-1.
	Index int
	// Count of shards, at least 1.
	Count int
}

// maxShards limits Count.
const maxShards = 1000

// ParseShard parses "i/n", the format of String, with 0 <= i < n <= 1000.
func ParseShard(s string) (Shard, error) {
	left, right, _ := strings.Cut(s, "/")
	i, errI := strconv.Atoi(left)
	n, errN := strconv.Atoi(right)
	shard := Shard{Index: i, Count: n}
	if errI != nil || errN != nil || i < 0 || i >= n || n > maxShards || shard.String() != s {
		return Shard{}, fmt.Errorf("shard %q is not i/n with 0 <= i < n <= %d, such as 0/2", s, maxShards)
	}
	return shard, nil
}

// String returns "i/n".
func (s Shard) String() string { return fmt.Sprintf("%d/%d", s.Index, s.Count) }

// LeaseName is the name of the Lease that the prober of this shard renews.
func (s Shard) LeaseName() string { return fmt.Sprintf("prober-%d-of-%d", s.Index, s.Count) }

// LeaseLabel is the value of LabelProberShard on that Lease, "i-of-n".
func (s Shard) LeaseLabel() string { return fmt.Sprintf("%d-of-%d", s.Index, s.Count) }

// ParseLeaseLabel parses the format of LeaseLabel.
func ParseLeaseLabel(v string) (Shard, error) {
	shard, err := ParseShard(strings.Replace(v, "-of-", "/", 1))
	if err != nil || shard.LeaseLabel() != v {
		return Shard{}, fmt.Errorf("prober shard label %q is not i-of-n with 0 <= i < n <= %d, such as 0-of-2", v, maxShards)
	}
	return shard, nil
}

// Owns reports whether the Proxy with this UID belongs to the shard. Exactly
// one of the n shards owns a UID. The ProxyProbe's owner reference carries the
// Proxy's UID.
func (s Shard) Owns(proxy types.UID) bool {
	h := fnv.New32a()
	_, _ = h.Write([]byte(proxy)) // never fails
	return h.Sum32()%uint32(s.Count) == uint32(s.Index)
}
