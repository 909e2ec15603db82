package main

import (
	"fmt"
	"io"
	"path/filepath"

	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/stack"
)

// greet prints the addresses and the first commands to try, which can be pasted as they are.
func greet(out io.Writer, s *stack.Stack) {
	facts := s.Facts()
	fmt.Fprintf(out, `
The stack is running.

  kubeconfig   %[1]s
  discovery    %[2]s
  token        %[3]s
  probe target %[4]s
  logs         %[5]s

For kubectl and the examples of the documents, in another terminal:

export KUBECONFIG=%[1]s DISCOVERY=%[2]s TOKEN=%[3]s PATH="$PATH:%[10]s"

Five commands to try there, which need none of that:

1. Apply a proxy:

%[6]s --kubeconfig %[1]s apply -f - <<'EOF'
apiVersion: crawl.example.com/v1alpha1
kind: Proxy
metadata:
  name: berlin
spec:
  mode: Managed
  provider: %[7]s
  attributes:
    geo: eu
  healthCheck:
    probeURL: %[4]s/echo
    exitProof: {}
    interval: 2s
EOF

2. Watch it become Ready (Ctrl-C ends the watch):

%[6]s --kubeconfig %[1]s get px -o wide --watch

3. Lease it for a target, as a crawler does:

curl -s -H 'Authorization: Bearer %[3]s' -H 'Content-Type: application/json' -d '{"selector":{"geo":"eu"},"target":"%[4]s","ttlSeconds":300}' %[2]s/v1/leases

4. Fetch a page through a lease, which ends with curl. The page shows the proxy's address
   as its peer:

DISCOVERY_TOKEN=%[3]s %[11]s lease --discovery %[2]s --selector geo=eu --target %[4]s -- curl -sS --cacert %[12]s %[4]s/

5. Apply one whose instance is a VM, of a stand-in for Compute Engine that shows
   its VMs at %[9]s:

%[6]s --kubeconfig %[1]s apply -f - <<'EOF'
apiVersion: crawl.example.com/v1alpha1
kind: Proxy
metadata:
  name: madrid
spec:
  mode: Managed
  provider: %[8]s
  placement:
    zone: europe-west1-b
    machineType: e2-micro
    image: proxy
  attributes:
    geo: eu
  healthCheck:
    probeURL: %[4]s/echo
    exitProof: {}
    interval: 2s
EOF

Ctrl-C here stops everything and cleans up.
`, facts.Kubeconfig, facts.DiscoveryURL, facts.Token, facts.TargetURL, s.LogDir(), facts.Kubectl, facts.Provider, facts.CloudProvider,
		facts.CloudVMsURL, filepath.Dir(facts.Kubectl), filepath.Join(s.BinDir(), "egress-proxies"), s.TargetCAFile())
}
