// Package check holds a history of a fault campaign against what the system
// promises. It is pure: the same history gets the same verdict, on any machine and
// at any time.
//
// It condemns only what cannot have been right. What nobody can know for certain,
// such as whether a request without an answer was done, counts for the system.
// Whatever is excused (a machine that was starved of CPU, what Metacontroller cannot
// see) is told, and every promise tells how many facts it was held against, so that
// none is kept for want of anything to break it.
package check
