package plan

import (
	"fmt"
	"time"
)

// Kind is what is done in a step.
type Kind string

// Kinds of steps.
const (
	// Kill ends a process with SIGKILL and starts it again.
	Kill Kind = "kill"
	// Freeze stops a process with SIGSTOP and lets it go on.
	Freeze Kind = "freeze"
	// Hooks has the hooks' answers come late, cut or not at all.
	Hooks Kind = "hooks"
	// Socket takes the adapter's socket away.
	Socket Kind = "socket"
	// Compute lets the Compute Metacontroller stand-in err.
	Compute Kind = "compute"
	// Target closes the probe target.
	Target Kind = "target"
	// Redis kills or freezes Redis.
	Redis Kind = "redis"
	// Disk fills the disk of the lease journal.
	Disk Kind = "disk"
	// Proxy switches a proxy of somebody else, or breaks the process of one of
	// ours.
	Proxy Kind = "proxy"
	// Instance ends an instance from outside: a Pod is deleted, a VM preempted
	// or removed.
	Instance Kind = "instance"
	// Act is something that a user does to a Proxy.
	Act Kind = "act"
)

// Step is one thing that goes wrong, or that somebody does.
type Step struct {
	// At is when, from the beginning of the trouble, and For how long it stays.
	// Acts take no time.
	At, For time.Duration
	Kind    Kind
	// Subject is a process or the name of a Proxy, "" where there is but one.
	Subject string
	// Variant says how, such as "stockout".
	Variant string
	// Pick is a random number for what else is to be chosen.
	Pick uint64
}

// String is a step for people.
func (s Step) String() string {
	text := fmt.Sprintf("%7.1fs %s", s.At.Seconds(), s.Kind)
	if s.Subject != "" {
		text += " " + s.Subject
	}
	if s.Variant != "" {
		text += " " + s.Variant
	}
	if s.For > 0 {
		text += fmt.Sprintf(" for %.1fs", s.For.Seconds())
	}
	return text
}

// Lane is a sequence of steps that do not overlap.
type Lane struct {
	// Name for people.
	Name string
	// Steps in the order of At, each over before the next one begins.
	Steps []Step
}
