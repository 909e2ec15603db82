// Package stack composes the local stack: a real control plane, our own
// processes, the local engine in Metacontroller's place, the process node in a
// kubelet's and a collector in the controller manager's, all on loopback addresses
// of the stack's own.
package stack
