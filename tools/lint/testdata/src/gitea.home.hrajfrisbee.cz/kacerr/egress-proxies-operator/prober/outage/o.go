package outage

import (
	"math/rand/v2" // want "prober/outage is pure and must not import math/rand/v2"
	"net"
	"time"
)

func decide(now time.Time) time.Time { return now.Add(time.Second) }

func bad() time.Time {
	go func() {}() // want "must not start goroutines"
	_ = rand.Int()
	_ = net.JoinHostPort("a", "1")
	_, _ = net.LookupHost("a") // want "must not use net.LookupHost"
	return time.Now()          // want "must not use time.Now"
}
