// Package engine makes what is into what should be, for instances that live
// outside the cluster.
//
// It is level-triggered. The API only notes what should be and answers with
// what is known; a loop per account compares the two and makes the calls. All
// knowledge is in memory and comes from the account's own answers, so that an
// engine that starts anew, or in another process, continues where the last one
// was cut off.
//
// For one Proxy the engine keeps the places where an instance of its UID is or
// may be: a place appears before an insert is sent, or when an instance is
// seen, and disappears only when two observations in a row, both begun after
// the last change there, say that nothing is there. With no place left, and
// with every zone heard, there is no instance: a new one may be inserted, or a
// deletion is complete. From this follow the rules:
//
//   - Never two instances for one UID: no insert while there is a place.
//   - Never a deletion reported while something lives: not Absent while there is
//     a place.
//   - Unknown is not absent: a zone that does not answer changes no place.
//   - A lost answer is not an answer: an insert without one keeps its place and
//     is repeated with the same request id until the outcome is known.
//
// One aggregated list per account and interval serves all its Proxies. Single
// reads follow operations, confirm what a list no longer shows, and precede
// every delete.
package engine
