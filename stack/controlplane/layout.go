package controlplane

import (
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"k8s.io/utils/clock"

	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/internal/process"
)

const (
	contextName = "local"
	userName    = "admin"
)

// layout is what one control plane consists of on disk and on the network.
type layout struct {
	dir  string
	addr string

	etcdPort, peerPort, apiPort int

	token     string
	authority []byte // CA certificate, PEM
}

// newLayout creates the folder with keys, certificates, token file and kubeconfig, and picks the
// ports.
func newLayout(cfg Config, clk clock.PassiveClock) (*layout, error) {
	if err := os.MkdirAll(cfg.Dir, 0o700); err != nil {
		return nil, fmt.Errorf("make the control plane's folder: %w", err)
	}
	ports, err := freePorts(cfg.Addr, 3)
	if err != nil {
		return nil, err
	}
	l := &layout{dir: cfg.Dir, addr: cfg.Addr, etcdPort: ports[0], peerPort: ports[1], apiPort: ports[2], token: newToken()}
	if err := l.writeKeys(clk); err != nil {
		return nil, err
	}
	return l, l.writeKubeconfig()
}

func (l *layout) path(name string) string { return filepath.Join(l.dir, name) }
func (l *layout) url(port int) string     { return "https://" + l.hostPort(port) }
func (l *layout) hostPort(port int) string {
	return net.JoinHostPort(l.addr, strconv.Itoa(port))
}

func (l *layout) writeKeys(clk clock.PassiveClock) error {
	ca, err := newAuthority(clk.Now())
	if err != nil {
		return err
	}
	l.authority = ca.certPEM
	ip := net.ParseIP(l.addr)
	etcd, err := ca.issue("etcd", []net.IP{ip})
	if err != nil {
		return err
	}
	api, err := ca.issue("kube-apiserver", []net.IP{ip, serviceIP()}, "kubernetes", "kubernetes.default", "kubernetes.default.svc")
	if err != nil {
		return err
	}
	signing, err := newSigningKey()
	if err != nil {
		return err
	}
	return l.writeFiles(map[string][]byte{
		"ca.crt":              ca.certPEM,
		"etcd.crt":            etcd.cert,
		"etcd.key":            etcd.key,
		"apiserver.crt":       api.cert,
		"apiserver.key":       api.key,
		"service-account.key": signing,
		"tokens.csv":          fmt.Appendf(nil, "%s,%s,%s,system:masters\n", l.token, userName, userName),
	})
}

func (l *layout) writeFiles(files map[string][]byte) error {
	for name, content := range files {
		if err := os.WriteFile(l.path(name), content, 0o600); err != nil {
			return fmt.Errorf("write the control plane's %s: %w", name, err)
		}
	}
	return nil
}

func (l *layout) writeKubeconfig() error {
	config := clientcmdapi.NewConfig()
	config.Clusters[contextName] = &clientcmdapi.Cluster{Server: l.url(l.apiPort), CertificateAuthorityData: l.authority}
	config.AuthInfos[userName] = &clientcmdapi.AuthInfo{Token: l.token}
	config.Contexts[contextName] = &clientcmdapi.Context{Cluster: contextName, AuthInfo: userName}
	config.CurrentContext = contextName
	content, err := clientcmd.Write(*config)
	if err != nil {
		return fmt.Errorf("encode the kubeconfig: %w", err)
	}
	return l.writeFiles(map[string][]byte{"kubeconfig": content})
}

// restConfig has no client-side rate limit: the server is ours alone.
func (l *layout) restConfig() *rest.Config {
	return &rest.Config{
		Host:            l.url(l.apiPort),
		BearerToken:     l.token,
		TLSClientConfig: rest.TLSClientConfig{CAData: l.authority},
		QPS:             -1,
	}
}

// freePorts returns n ports that are free at addr now. Another process could take one before we do,
// which is why stacks have addresses of their own.
func freePorts(addr string, n int) (ports []int, err error) {
	var listeners []net.Listener
	defer func() {
		for _, ln := range listeners {
			err = errors.Join(err, ln.Close())
		}
	}()
	for range n {
		ln, err := net.Listen("tcp", net.JoinHostPort(addr, "0"))
		if err != nil {
			return nil, fmt.Errorf("find a free port on %s: %w", addr, err)
		}
		listeners = append(listeners, ln)
		ports = append(ports, ln.Addr().(*net.TCPAddr).Port)
	}
	return ports, nil
}

// serviceRange is where Services get their virtual addresses from. Nothing
// routes it here; serviceIP, its first, is the API server's to Pods.
const serviceRange = "10.0.0.0/24"

func serviceIP() net.IP { return net.IPv4(10, 0, 0, 1) }

// etcdCommand runs a cluster of one, with TLS and client certificates on all ports: every user of
// the machine can connect to a loopback port.
func (l *layout) etcdCommand(program string, durable bool) process.Command {
	client, peer := l.url(l.etcdPort), l.url(l.peerPort)
	return process.Command{
		Name:    Etcd,
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
		Name:    APIServer,
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
