// Package standin stands in for Metacontroller on laptops and in tests. It drives
// one CompositeController manifest over the same HTTP hooks and treats API
// objects as Metacontroller 4.17 with its default dynamic apply does, also
// where that is inconvenient: a hook that misbehaves there misbehaves here. The
// exceptions are that it survives a null child (an error here, a crash there),
// and that it takes the manifest from a file, so that hook requests carry a
// controller without UID.
//
// One sync of a parent runs so: finalizer on, children claimed, customize hook
// (cached), sync or finalize hook, resync timer armed, finalizer off when
// finalized, children deleted, then created or updated, status replaced.
package standin
