// Package realnode runs a real Kubernetes node on this machine: containerd and
// runc from the system's packages, kubelet, scheduler and controller manager of the
// control plane's release. It needs Linux and root, and keeps to namespaces of
// its own: when the process ends, however it ends, so do all containers, and no
// bridge, mount or address is left.
//
// There is no kube-proxy (Services do not route, but for the API server's own), no
// DNS, and nothing that enforces NetworkPolicies.
package realnode
