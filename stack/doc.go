// Package stack composes the local stack: a real control plane, our own
// processes, stand-ins for Metacontroller and the garbage collector, and the process node in place of a kubelet, all
// on loopback addresses of the stack's own.
package stack
