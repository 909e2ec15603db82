// Package controlplane runs a real etcd and kube-apiserver on one loopback
// address, for laptops and tests: no cluster, no Docker, no root. It finds the
// programs, or builds them once from the Go modules in its sub-folders, whose
// go.mod files pin the versions.
package controlplane
