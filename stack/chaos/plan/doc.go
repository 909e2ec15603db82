// Package plan decides what goes wrong in a fault campaign, and when. It is pure:
// the same seed, length and fleet give the same steps, so that a campaign can be
// run again.
package plan
