// Package upstream runs the real Metacontroller, which somebody else has built,
// in the place of the local engine: on the local stack and in tests.
package upstream
