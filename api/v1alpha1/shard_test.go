package v1alpha1

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation"
)

func TestParseShard(t *testing.T) {
	for in, want := range map[string]Shard{
		"0/1":      {0, 1},
		"0/2":      {0, 2},
		"6/7":      {6, 7},
		"999/1000": {999, 1000},
	} {
		got, err := ParseShard(in)
		require.NoError(t, err, in)
		assert.Equal(t, want, got)
	}
	for _, in := range []string{
		"", "/", "0", "0/", "/1", "1/1", "2/1", "-1/2", "0/0", "0/-1", "0/1001", "a/b", "0/1/2", " 0/1", "0/1 ", "+0/1", "00/1", "0/01",
		"0x0/1", "0.0/1", "99999999999999999999/1", "0-of-1", "０/１",
	} {
		_, err := ParseShard(in)
		require.Error(t, err, in)
		assert.ErrorContains(t, err, fmt.Sprintf("%q", in), "the error shows what was wrong")
		assert.ErrorContains(t, err, "such as 0/2", "and what would be right")
	}
}

func TestParseLeaseLabel(t *testing.T) {
	got, err := ParseLeaseLabel("1-of-3")
	require.NoError(t, err)
	assert.Equal(t, Shard{1, 3}, got)
	for _, in := range []string{"", "1/3", "3-of-3", "1-of-3-of-4", "1 of 3", "-of-", "+1-of-3"} {
		_, err := ParseLeaseLabel(in)
		assert.ErrorContains(t, err, "such as 0-of-2", in)
	}
}

func TestShardNames(t *testing.T) {
	for n := 1; n <= 1000; n += 111 {
		s := Shard{Index: n - 1, Count: n}
		back, err := ParseShard(s.String())
		require.NoError(t, err)
		assert.Equal(t, s, back)
		back, err = ParseLeaseLabel(s.LeaseLabel())
		require.NoError(t, err)
		assert.Equal(t, s, back)
		assert.Empty(t, validation.IsDNS1123Subdomain(s.LeaseName()))
		assert.Empty(t, validation.IsValidLabelValue(s.LeaseLabel()))
	}
	assert.NotEqual(t, Shard{0, 2}.LeaseName(), Shard{0, 3}.LeaseName(), "a resized fleet has leases of its own")
}

func TestEveryProxyHasExactlyOneShard(t *testing.T) {
	const proxies = 2000
	for n := 1; n <= 7; n++ {
		owned := make([]int, n)
		for i := range proxies {
			uid := types.UID(fmt.Sprintf("%08x-1111-4222-8333-%012d", i*2654435761, i))
			owners := 0
			for index := range n {
				if (Shard{Index: index, Count: n}).Owns(uid) {
					owners++
					owned[index]++
				}
			}
			require.Equal(t, 1, owners, "%s of %d shards", uid, n)
		}
		for index, count := range owned {
			assert.InDelta(t, proxies/n, count, proxies/float64(n)*0.3, "shard %d/%d has its fair part", index, n)
		}
	}
}

// Probers of two releases that run concurrently must agree on the owner of each Proxy.
func TestOwnsIsGolden(t *testing.T) {
	want := map[types.UID]int{
		"7d1b1c9e-1111-4222-8333-444455556666": 1,
		"00000000-0000-0000-0000-000000000000": 3,
		"":                                     2,
	}
	for uid, index := range want {
		assert.True(t, Shard{Index: index, Count: 7}.Owns(uid), uid)
	}
}

func FuzzParseShard(f *testing.F) {
	for _, seed := range []string{"0/1", "6/7", "1/1", "-1/2", "", "0-of-1", "99999999999999999999/1"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, in string) {
		s, err := ParseShard(in)
		if err != nil {
			if s != (Shard{}) {
				t.Fatalf("ParseShard(%q) returned %v with its error", in, s)
			}
			return
		}
		if s.String() != in || s.Index < 0 || s.Index >= s.Count || s.Count > 1000 {
			t.Fatalf("ParseShard(%q) = %v", in, s)
		}
		if back, err := ParseLeaseLabel(s.LeaseLabel()); err != nil || back != s {
			t.Fatalf("label of %v gives %v, %v", s, back, err)
		}
	})
}

func FuzzParseLeaseLabel(f *testing.F) {
	for _, seed := range []string{"0-of-1", "6-of-7", "0/1", "-of-", ""} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, in string) {
		if s, err := ParseLeaseLabel(in); err == nil && s.LeaseLabel() != in {
			t.Fatalf("ParseLeaseLabel(%q) = %v", in, s)
		}
	})
}
