package provider

import (
	"time"

	"golang.org/x/time/rate"
)

// Bucket throttles mutations. It never sleeps, so that it works with any clock.
type Bucket struct {
	limiter *rate.Limiter
}

// NewBucket allows a burst, and perSecond calls on average.
func NewBucket(perSecond float64, burst int) *Bucket {
	return &Bucket{limiter: rate.NewLimiter(rate.Limit(perSecond), burst)}
}

// Take takes a token and returns 0, or takes none and returns the time until one
// is available.
func (b *Bucket) Take(now time.Time) time.Duration {
	r := b.limiter.ReserveN(now, 1)
	wait := r.DelayFrom(now)
	if wait > 0 {
		r.CancelAt(now)
	}
	return wait
}
