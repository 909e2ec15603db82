// Package history is what a fault campaign writes down: everything that was done
// to the system and everything that was seen of it, one record a line, so that
// it can be judged again without running it again.
//
// All times are offsets on the campaign's own monotonic clock. The wall time of
// its start is recorded once, to read what the system says in wall time.
package history
