package kube

import (
	"time"

	"k8s.io/apimachinery/pkg/util/wait"
)

// mostBlind is the longest pause between two retries of a watch.
const mostBlind = 4 * time.Second

// WatchBackoff is the backoff of a reflector while the API server is down: from half a
// second to 4 s, with a jitter of 50 %, so that many reflectors do not retry at once.
// client-go's own backoff goes up to a minute and resets only after two minutes without a
// failure: after a few short outages a cache would be stale for that long. Use a new one
// for each reflector.
func WatchBackoff() *wait.Backoff {
	return &wait.Backoff{Duration: mostBlind / 8, Factor: 2, Jitter: 0.5, Cap: mostBlind, Steps: 8}
}
