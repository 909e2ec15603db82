// Package provider is what a cloud must offer to the adapter. A cloud is one
// folder with an implementation of Cloud and one line in the registry of
// cmd/cloud; CONTRIBUTING.md lists the steps, and package providertest tests the
// promises below.
//
// # What a Cloud promises
//
// It makes calls and classifies their outcome, and decides nothing. In
// particular:
//
//   - One method, one call (a List as many as it has pages). No retries, no
//     caches, no waiting: the engine paces and counts calls.
//   - Labels are part of the insert. An instance without them would be nobody's.
//   - An Insert that was accepted is visible to Get at once, and an Insert with
//     the same RequestID is the same call, however often it is sent.
//   - ErrNotFound is the cloud's own word about that very instance or
//     operation. A missing permission, a rate limit, a zone that does not
//     answer, a time-out are never ErrNotFound.
//   - A List that misses something says what: Unreachable zones by name, or
//     Partial. What a complete list does not show is taken not to exist.
//   - IDs are unique for ever; names only while the instance lives.
//   - Calls end with their context. An answer that got lost is ErrTransient with
//     Unsure set: the call may have taken effect.
//
// # What a Cloud may leave to the engine
//
// Repeating calls, following operations, confirming absences, falling back to
// other zones, back-off after shortages and rate limits, the order of deletions
// and insertions, and ownership: the engine reads an instance before it deletes
// it and compares UID, hash and ID.
//
// # Errors
//
// Every error is, or wraps, an *Error: it unwraps to one class of this package,
// which says what to do about it, and to its cause. Unclassified errors count as
// transient and unsure. The failures that matter most (no capacity, quota, a bad
// image) may come only with the operation: look there, and look at its error
// itself and not at its HTTP status.
//
// # Secrets
//
// User data may hold passwords, and clouds repeat what they refuse. No error's
// text may show it.
package provider
