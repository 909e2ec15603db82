// Package testwait waits for conditions in tests.
package testwait

import (
	"fmt"
	"testing"
	"time"
)

const (
	patience = 2 * time.Minute // far beyond what a condition takes, for loaded machines
	interval = 2 * time.Millisecond
)

// Eventually polls a condition, and fails the test after a timeout. The interval grows with the
// duration of a poll, so that polling does not slow down the machine. A failure prints also, such
// as the output of a process.
func Eventually(t testing.TB, what string, condition func() bool, also ...any) {
	t.Helper()
	for start := time.Now(); ; {
		began := time.Now()
		if condition() {
			return
		}
		if time.Since(start) > patience {
			t.Fatalf("not within %s: %s\n%s", patience, what, fmt.Sprint(also...))
		}
		time.Sleep(max(interval, 4*time.Since(began)))
	}
}
