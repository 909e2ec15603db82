// Package gcp makes instances on Google Compute Engine, through Google's own
// REST client and with five calls only: instances insert, get, delete and
// aggregatedList, and zoneOperations get.
//
// What it knows about that client and its server, beyond their documentation:
//
//   - The client retries get by itself for ten minutes unless its call options
//     are emptied; the engine wants to pace and count calls.
//   - aggregatedList ignores its context; only http.Client.Timeout ends it.
//   - Unreachable zones show as warnings on any page, which the iterator hides.
//   - Operation.Wait returns nil for an operation that carries an error without
//     an HTTP status; the error itself has to be looked at.
//   - Error messages repeat the value that they refuse, user data included.
//   - 403 means quota, rate limit or permission; only the reason tells.
package gcp
