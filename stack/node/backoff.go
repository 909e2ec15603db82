package node

import "time"

// Restart delays follow the kubelet's crash loop backoff, scaled down from ten seconds and five
// minutes for laptops.
const (
	firstRestartDelay = time.Second
	maxRestartDelay   = 30 * time.Second
	// steadyAfter is how long a process must have run for the backoff to start over. The kubelet
	// takes twice its maximum as well.
	steadyAfter = 2 * maxRestartDelay
)

// backoff computes the delay before each restart of one container.
type backoff struct{ last time.Duration }

// next returns the backoff after a process that ran for that long: it doubles up to the maximum.
func (b *backoff) next(ran time.Duration) time.Duration {
	switch {
	case b.last == 0 || ran >= steadyAfter:
		b.last = firstRestartDelay
	default:
		b.last = min(2*b.last, maxRestartDelay)
	}
	return b.last
}
