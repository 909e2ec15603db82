package node

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/types"
)

func TestCheckSubnet(t *testing.T) {
	for _, good := range []string{"127.41.7.0/24", "127.0.0.0/8", "127.41.7.224/27"} {
		assert.NoError(t, CheckSubnet(netip.MustParsePrefix(good)), good)
	}
	for bad, says := range map[string]string{
		"10.0.0.0/24":    "not within 127.0.0.0/8",
		"126.0.0.0/7":    "not within 127.0.0.0/8",
		"0.0.0.0/0":      "not within 127.0.0.0/8",
		"::1/128":        "not within 127.0.0.0/8",
		"127.41.7.1/24":  "write 127.41.7.0/24",
		"127.41.7.16/28": "too small",
	} {
		assert.ErrorContains(t, CheckSubnet(netip.MustParsePrefix(bad)), says, bad)
	}
	assert.Error(t, CheckSubnet(netip.Prefix{}))
}

func TestAddressesAreTakenInTurn(t *testing.T) {
	a := newAddresses(netip.MustParsePrefix("127.41.7.0/27"))
	take := func(pod types.UID) string {
		addr, err := a.take(pod, netip.Addr{})
		require.NoError(t, err)
		return addr.String()
	}
	assert.Equal(t, "127.41.7.16", take("a"))
	a.release("a", netip.MustParseAddr("127.41.7.16"))
	assert.Equal(t, "127.41.7.17", take("b"), "an address is not used again at once")
	for i := 18; i <= 30; i++ {
		assert.Equal(t, fmt.Sprintf("127.41.7.%d", i), take(types.UID(fmt.Sprint(i))))
	}
	assert.Equal(t, "127.41.7.16", take("c"), "after the last usable one it starts again")
	_, err := a.take("d", netip.Addr{})
	require.ErrorIs(t, err, ErrNoAddress)
	a.release("c", netip.MustParseAddr("127.41.7.20"))
	_, err = a.take("d", netip.Addr{})
	require.ErrorIs(t, err, ErrNoAddress, "a Pod cannot give back another's address")
	a.release("20", netip.MustParseAddr("127.41.7.20"))
	assert.Equal(t, "127.41.7.20", take("d"))
}

// TestAddressesContinueAfterARestart: the turn goes on behind what Pods of an earlier
// node have, or the first to go would hand its address to the next to come.
func TestAddressesContinueAfterARestart(t *testing.T) {
	a := newAddresses(netip.MustParsePrefix("127.41.7.0/27"))
	for _, had := range []string{"127.41.7.19", "127.41.7.16"} { // in any order
		_, err := a.take(types.UID(had), netip.MustParseAddr(had))
		require.NoError(t, err)
	}
	a.release("127.41.7.16", netip.MustParseAddr("127.41.7.16"))
	got, err := a.take("new", netip.Addr{})
	require.NoError(t, err)
	assert.Equal(t, "127.41.7.20", got.String())

	_, err = a.take("last", netip.MustParseAddr("127.41.7.30"))
	require.NoError(t, err)
	got, err = a.take("newer", netip.Addr{})
	require.NoError(t, err)
	assert.Equal(t, "127.41.7.16", got.String(), "after the last usable one it starts again")
}

func TestPodKeepsItsAddress(t *testing.T) {
	a := newAddresses(netip.MustParsePrefix("127.41.7.0/24"))
	had := netip.MustParseAddr("127.41.7.99")
	for range 2 { // asking twice is the same Pod
		got, err := a.take("a", had)
		require.NoError(t, err)
		assert.Equal(t, had, got)
	}
	assert.Equal(t, 1, a.inUse())
	other, err := a.take("b", had)
	require.NoError(t, err)
	assert.NotEqual(t, had, other, "it is taken")
	for _, foreign := range []string{"127.41.7.1", "127.41.7.15", "127.41.7.255", "127.41.8.20", "10.0.0.1"} {
		got, err := a.take(types.UID(foreign), netip.MustParseAddr(foreign))
		require.NoError(t, err)
		assert.NotEqual(t, foreign, got.String(), "not an address for Pods here")
	}
}

func TestAddressesAreNeverShared(t *testing.T) {
	a := newAddresses(netip.MustParsePrefix("127.41.7.0/26"))
	random := rand.New(rand.NewPCG(3, 4))
	owners := map[netip.Addr]types.UID{}
	for i := range 5000 {
		pod := types.UID(fmt.Sprint(i))
		if random.IntN(2) == 0 {
			for addr, owner := range owners {
				a.release(owner, addr)
				delete(owners, addr)
				break
			}
			continue
		}
		got, err := a.take(pod, offset(netip.MustParseAddr("127.41.7.0"), random.Uint32N(64)))
		if err != nil {
			require.Len(t, owners, 47, "full") // 16 to 62
			continue
		}
		require.NotContains(t, owners, got)
		owners[got] = pod
		require.Equal(t, len(owners), a.inUse())
	}
}
