package controlplane

import (
	"fmt"
	"net"

	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/internal/process"
)

// serviceRange is where Services get their virtual addresses from. Nothing
// routes it here; serviceIP, its first, is the API server's to Pods.
const serviceRange = "10.0.0.0/24"

func serviceIP() net.IP { return net.IPv4(10, 0, 0, 1) }

// etcdCommand runs a cluster of one, with TLS and client certificates on all ports: every user of
// the machine can connect to a loopback port.
func (l *layout) etcdCommand(program string, durable bool) process.Command {
	client, peer := l.url(l.etcdPort), l.url(l.peerPort)
	return process.Command{
		Name:    etcdBinary,
		Path:    program,
		Dir:     l.dir,
		Env:     []string{}, // ETCD_ variables would be options too
		LogFile: l.path("etcd.log"),
		Args: []string{
			"--name=local",
			"--data-dir=" + l.path("etcd"),
			"--listen-client-urls=" + client,
			"--advertise-client-urls=" + client,
			"--listen-peer-urls=" + peer,
			"--initial-advertise-peer-urls=" + peer,
			"--initial-cluster=local=" + peer,
			"--cert-file=" + l.path("etcd.crt"),
			"--key-file=" + l.path("etcd.key"),
			"--trusted-ca-file=" + l.path("ca.crt"),
			"--client-cert-auth=true",
			"--peer-cert-file=" + l.path("etcd.crt"),
			"--peer-key-file=" + l.path("etcd.key"),
			"--peer-trusted-ca-file=" + l.path("ca.crt"),
			"--peer-client-cert-auth=true",
			"--log-level=warn",
			fmt.Sprintf("--unsafe-no-fsync=%t", !durable),
		},
	}
}

// apiServerCommand runs with a token file and RBAC, without a cloud provider, and only at the one
// address: it publishes no endpoints of its own.
func (l *layout) apiServerCommand(program string) process.Command {
	return process.Command{
		Name:    apiServerBinary,
		Path:    program,
		Dir:     l.dir,
		Env:     []string{},
		LogFile: l.path("kube-apiserver.log"),
		Args: []string{
			"--etcd-servers=" + l.url(l.etcdPort),
			"--etcd-cafile=" + l.path("ca.crt"),
			"--etcd-certfile=" + l.path("etcd.crt"),
			"--etcd-keyfile=" + l.path("etcd.key"),
			"--bind-address=" + l.addr,
			"--advertise-address=" + l.addr,
			fmt.Sprintf("--secure-port=%d", l.apiPort),
			"--tls-cert-file=" + l.path("apiserver.crt"),
			"--tls-private-key-file=" + l.path("apiserver.key"),
			"--token-auth-file=" + l.path("tokens.csv"),
			"--anonymous-auth=false",
			"--authorization-mode=Node,RBAC",
			"--service-account-issuer=https://kubernetes.default.svc",
			"--service-account-key-file=" + l.path("service-account.key"),
			"--service-account-signing-key-file=" + l.path("service-account.key"),
			"--service-cluster-ip-range=" + serviceRange,
			"--endpoint-reconciler-type=none",
			"--profiling=false",
		},
	}
}
