package provider

import (
	"time"

	"golang.org/x/time/rate"
)

// Bucket paces calls that change something. It never sleeps, so that it works
// on any clock.
type Bucket struct {
	limiter *rate.Limiter
}

// NewBucket allows perSecond calls in the long run and burst at once.
func NewBucket(perSecond float64, burst int) *Bucket {
	return &Bucket{limiter: rate.NewLimiter(rate.Limit(perSecond), burst)}
}

// Take takes a token and returns 0, or takes none and returns how long to wait
// for one.
func (b *Bucket) Take(now time.Time) time.Duration {
	r := b.limiter.ReserveN(now, 1)
	wait := r.DelayFrom(now)
	if wait > 0 {
		r.CancelAt(now)
	}
	return wait
}
