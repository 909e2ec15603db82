package stack

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"net/netip"
	"syscall"
)

const (
	// claimPort is listened on, on the first address of a subnet, by the stack that owns it. The
	// kernel closes it however the stack ends.
	claimPort  = 17999
	claimTries = 100 // how many subnets are tried, of 65,000
)

// subnet is a /24 of 127.0.0.0/8 that no other stack uses.
type subnet struct {
	prefix netip.Prefix
	claim  net.Listener
	// given are the addresses that freePort has returned.
	given map[string]bool
}

// claimSubnet reserves an unused subnet.
func claimSubnet() (*subnet, error) {
	for range claimTries {
		second, third := byte(1+rand.IntN(254)), byte(rand.IntN(256))
		s := &subnet{given: map[string]bool{}, prefix: netip.PrefixFrom(netip.AddrFrom4([4]byte{127, second, third, 0}), 24)}
		ln, err := net.Listen("tcp4", netip.AddrPortFrom(s.host(1), claimPort).String())
		if err == nil {
			s.claim = ln
			return s, nil
		}
		if !errors.Is(err, syscall.EADDRINUSE) {
			return nil, fmt.Errorf("claim loopback subnet %s: %w", s.prefix, err)
		}
	}
	return nil, fmt.Errorf("claim a loopback subnet: port %d was taken on all of %d; does something listen on it on all addresses?", claimPort, claimTries)
}

// host is the n-th address of the subnet.
func (s *subnet) host(n byte) netip.Addr {
	b := s.prefix.Addr().As4()
	b[3] = n
	return netip.AddrFrom4(b)
}

// freePort returns an address of the subnet with a free port, each only once. No other process uses
// the subnet, so the port stays free.
func (s *subnet) freePort(n byte) (string, error) {
	for {
		ln, err := net.Listen("tcp4", netip.AddrPortFrom(s.host(n), 0).String())
		if err != nil {
			return "", fmt.Errorf("find a free port on %s: %w", s.host(n), err)
		}
		addr := ln.Addr().String()
		if err := ln.Close(); err != nil {
			return "", fmt.Errorf("find a free port on %s: %w", s.host(n), err)
		}
		if !s.given[addr] {
			s.given[addr] = true
			return addr, nil
		}
	}
}

// release returns the subnet.
func (s *subnet) release() error { return s.claim.Close() }
