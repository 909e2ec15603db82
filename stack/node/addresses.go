package node

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"sync"

	"k8s.io/apimachinery/pkg/types"
)

// reserved is the number of addresses at the start of the subnet that Pods do not get: the user of
// the node has them.
const reserved = 16

// ErrNoAddress: every address of the subnet is in use.
var ErrNoAddress = errors.New("no free address in the node's subnet")

// addresses hands out the addresses of a subnet in turn, so that an address is not reused soon: a
// client with a stale address must not reach another Pod there.
type addresses struct {
	first, last netip.Addr

	mu     sync.Mutex
	owners map[netip.Addr]types.UID
	next   netip.Addr
}

// CheckSubnet returns an error unless subnet is large enough and in IPv4 loopback, where Linux
// accepts every address without set-up.
func CheckSubnet(subnet netip.Prefix) error {
	loopback := netip.MustParsePrefix("127.0.0.0/8")
	switch {
	case !subnet.IsValid() || !subnet.Addr().Is4() || !loopback.Overlaps(subnet) || subnet.Bits() < loopback.Bits():
		return fmt.Errorf("subnet %s is not within 127.0.0.0/8, such as 127.41.7.0/24", subnet)
	case subnet != subnet.Masked():
		return fmt.Errorf("subnet %s has bits set beyond its mask: write %s", subnet, subnet.Masked())
	case subnet.Bits() > 27:
		return fmt.Errorf("subnet %s is too small: want a /27 or larger, its first %d addresses are not for Pods", subnet, reserved)
	}
	return nil
}

func newAddresses(subnet netip.Prefix) *addresses {
	first := offset(subnet.Addr(), reserved)
	return &addresses{
		first:  first,
		last:   offset(subnet.Addr(), 1<<(32-subnet.Bits())-2), // the last one is the broadcast address
		owners: map[netip.Addr]types.UID{},
		next:   first,
	}
}

// offset returns the IPv4 address n after a.
func offset(a netip.Addr, n uint32) netip.Addr {
	b := a.As4()
	binary.BigEndian.PutUint32(b[:], binary.BigEndian.Uint32(b[:])+n)
	return netip.AddrFrom4(b)
}

// take returns an address for the Pod: the preferred one if it is free and in the subnet, else the
// next free one, else ErrNoAddress.
func (a *addresses) take(pod types.UID, prefer netip.Addr) (netip.Addr, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.contains(prefer) && (a.free(prefer) || a.owners[prefer] == pod) {
		a.owners[prefer] = pod
		if !prefer.Less(a.next) { // an earlier node gave it out
			a.next = a.after(prefer)
		}
		return prefer, nil
	}
	start := a.next
	for {
		candidate := a.next
		a.next = a.after(candidate)
		if a.free(candidate) {
			a.owners[candidate] = pod
			return candidate, nil
		}
		if a.next == start {
			return netip.Addr{}, ErrNoAddress
		}
	}
}

// release frees the address if the Pod has it.
func (a *addresses) release(pod types.UID, addr netip.Addr) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.owners[addr] == pod {
		delete(a.owners, addr)
	}
}

// inUse is the number of addresses that Pods have.
func (a *addresses) inUse() int {
	a.mu.Lock()
	defer a.mu.Unlock()
	return len(a.owners)
}

func (a *addresses) contains(addr netip.Addr) bool {
	return addr.IsValid() && !addr.Less(a.first) && !a.last.Less(addr)
}

func (a *addresses) free(addr netip.Addr) bool {
	_, taken := a.owners[addr]
	return !taken
}

func (a *addresses) after(addr netip.Addr) netip.Addr {
	if addr == a.last {
		return a.first
	}
	return addr.Next()
}
