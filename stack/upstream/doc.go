// Package upstream runs the real Metacontroller, from a binary built elsewhere, in place of its stand-in: on the local
// stack and in tests.
package upstream
