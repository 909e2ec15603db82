package kube

import (
	"time"

	"k8s.io/apimachinery/pkg/util/wait"
)

// mostBlind bounds the pause between two tries to follow the API server.
const mostBlind = 4 * time.Second

// WatchBackoff is how a reflector pauses between tries while the API server is
// away: half a second at first, at most 4 s, and up to half as much again, so that
// many do not come back at once. client-go's own goes up to a minute, and stays
// there until two minutes have passed without a failure: who acts on what it
// follows would believe for that long, after a few short outages, what was true
// before them. Use a new one for each reflector.
func WatchBackoff() *wait.Backoff {
	return &wait.Backoff{Duration: mostBlind / 8, Factor: 2, Jitter: 0.5, Cap: mostBlind, Steps: 8}
}
