package gcestandin

import (
	"log/slog"
	"time"

	"k8s.io/utils/clock"
)

// Options of a Server. The zero value works: one project "demo", four zones,
// every image exists and nothing takes time.
type Options struct {
	// Project that exists; all others are not found. Default "demo".
	Project string
	// Zones that exist. Default four zones of two regions.
	Zones []string
	// Images that exist, as inserts name them. Nil means all.
	Images []string
	// Timing of VMs and operations.
	Timing Timing
	// Clock that everything is timed by. Default the real one.
	Clock clock.PassiveClock
	// Runner gives running VMs a life. Default none; addresses are then taken
	// from 203.0.113.0/24 and beyond.
	Runner Runner
	// OnChange is called after every VM that appears, disappears or is told to
	// change, in their order and under the server's lock: it must not call the
	// server.
	OnChange func(Change)
	// Log of the server. Default none.
	Log *slog.Logger
}

// Timing says how long things take. Zero means at once.
type Timing struct {
	// Provisioning is the time in status PROVISIONING.
	Provisioning time.Duration
	// Staging is the time in status STAGING after it; then RUNNING.
	Staging time.Duration
	// Address is the time from RUNNING until the external address shows.
	Address time.Duration
	// Insert is the time until an insert operation is DONE.
	Insert time.Duration
	// Delete is the time from a delete until the VM is gone and the operation
	// DONE; the VM is STOPPING meanwhile.
	Delete time.Duration
	// ListLag is how far lists are behind.
	ListLag time.Duration
}

// Change is what OnChange is told.
type Change struct {
	// Kind is inserted, removed or changed.
	Kind string
	// VM that it is about, as it is after the change.
	VM VM
}

func (o *Options) setDefaults() {
	if o.Project == "" {
		o.Project = "demo"
	}
	if len(o.Zones) == 0 {
		o.Zones = []string{"europe-west1-b", "europe-west1-c", "europe-west1-d", "us-central1-a"}
	}
	if o.Clock == nil {
		o.Clock = clock.RealClock{}
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
}
