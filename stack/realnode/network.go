package realnode

import (
	"context"
	"fmt"
	"io"
	"net"
	"os/exec"
	"strings"
	"sync"

	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/internal/connectproxy"
)

const (
	// bridge connects the Pods. GatewayIP is its address, the node's and, to
	// Pods, of all other processes.
	bridge = "px0"
	// GatewayIP is the node's address as Pods see it.
	GatewayIP = "10.244.0.1"
	podSubnet = "10.244.0.0/24"
)

// network makes the bridge before the first Pod does, with the address at which
// Pods look for the API server.
func network(ctx context.Context, serviceIP string) error {
	for _, line := range []string{
		"link set lo up",
		"link add " + bridge + " type bridge",
		"addr add " + GatewayIP + "/24 dev " + bridge,
		"addr add " + serviceIP + "/32 dev " + bridge,
		"link set " + bridge + " up",
	} {
		out, err := exec.CommandContext(ctx, "ip", strings.Fields(line)...).CombinedOutput()
		if err != nil {
			return fmt.Errorf("ip %s: %w: %s", line, err, out)
		}
	}
	return nil
}

// conflist is the Pods' network.
const conflist = `{
  "cniVersion": "0.4.0",
  "name": "pods",
  "plugins": [
    {
      "type": "bridge", "bridge": "` + bridge + `", "isGateway": true, "ipMasq": false, "hairpinMode": true,
      "ipam": {"type": "host-local", "ranges": [[{"subnet": "` + podSubnet + `"}]], "routes": [{"dst": "0.0.0.0/0"}]}
    }
  ]
}
`

// forwarder leads connections on to another address.
type forwarder struct {
	ln     net.Listener
	cancel context.CancelFunc
	done   chan error
}

func forward(from, to string) (*forwarder, error) {
	ln, err := net.Listen("tcp", from)
	if err != nil {
		return nil, fmt.Errorf("lead %s to %s: %w", from, to, err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	f := &forwarder{ln: ln, cancel: cancel, done: make(chan error, 1)}
	go func() {
		f.done <- connectproxy.Accept(ctx, ln, func(ctx context.Context, client net.Conn) { connect(ctx, client, to) })
	}()
	return f, nil
}

func connect(ctx context.Context, client net.Conn, to string) {
	defer client.Close()
	server, err := (&net.Dialer{}).DialContext(ctx, "tcp", to)
	if err != nil {
		return
	}
	stop := context.AfterFunc(ctx, func() { _, _ = client.Close(), server.Close() })
	defer stop()
	var copies sync.WaitGroup
	copies.Go(func() { _, _ = io.Copy(server, client); _ = server.Close() })
	copies.Go(func() { _, _ = io.Copy(client, server); _ = client.Close() })
	copies.Wait()
}

func (f *forwarder) close() error {
	f.cancel()
	return <-f.done
}
