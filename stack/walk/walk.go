// Package walk uses all features of a running stack, step by step, prints what it sees and checks
// it. `make demo` prints it.
package walk

import (
	"context"
	"crypto/x509"
	"fmt"
	"io"
	"time"
)

// Stack is what the walk needs of the stack that it walks.
type Stack struct {
	// Kubectl is the path of kubectl, and Kubeconfig of a kubeconfig with all rights.
	Kubectl, Kubeconfig string
	// Namespace in which the walk creates its Proxies. It must exist.
	Namespace string
	// Provider is the name of the provider that runs Pods.
	Provider string
	// CloudProvider is the name of the provider that runs VMs, empty without one. CloudVMsURL lists its VMs.
	CloudProvider, CloudVMsURL string
	// DiscoveryURL and Token are those of the discovery API.
	DiscoveryURL, Token string
	// TargetURL is the root of the local TLS target, such as https://127.41.7.1:8443. TargetCA verifies it.
	TargetURL string
	TargetCA  *x509.CertPool
	// ExternalHost and ExternalPort are the address of an External proxy.
	ExternalHost string
	ExternalPort int32
	// PodRoot is the folder of the process node, with one subfolder per running Pod; empty when Pods run elsewhere.
	PodRoot string
	// ContainerPID finds the process of a container by its id in a Pod's status. It is nil on the process node, whose ids
	// contain the process.
	ContainerPID func(ctx context.Context, containerID string) (int, error)
	// RequireSquid fails the walk when Pods run on the built-in proxy.
	RequireSquid bool
}

// step is one part of the walk.
type step struct {
	title string
	run   func(*walker, context.Context) error
}

// steps in their order. Later ones depend on earlier ones. Those for VMs need a cloud.
func (s *Stack) steps() []step {
	all := []step{
		{"apply three proxies and wait until all are Ready", (*walker).applyProxies},
		{"list, lease by attributes, and crawl through the leased proxy", (*walker).leaseAndCrawl},
		{"report rate_limited, run dry, and release", (*walker).coolDown},
		{"edit spec.port: the instance is replaced under the same name", (*walker).replace},
		{"freeze a proxy, thaw it, kill it", (*walker).freezeAndKill},
	}
	if s.CloudProvider != "" {
		all = append(all,
			step{"apply a proxy on a cloud VM: made, probed, leased and crawled through", (*walker).runVM},
			step{"edit its zone: the VM is replaced, never two at once", (*walker).replaceVM})
	}
	return append(all, step{"delete everything", (*walker).deleteAll})
}

// Run runs all steps and writes what it does and sees to out. The error names the failed step, what
// was expected and what was seen. After a failure the Proxies stay, for inspection.
func Run(ctx context.Context, stack Stack, out io.Writer) error {
	w, err := newWalker(stack, out)
	if err != nil {
		return err
	}
	began := time.Now()
	steps := stack.steps()
	for i, s := range steps {
		start := time.Now()
		w.printf("\n== %d. %s\n", i+1, s.title)
		if err := s.run(w, ctx); err != nil {
			return fmt.Errorf("step %d (%s): %w", i+1, s.title, err)
		}
		w.printf("   done in %s\n", rounded(time.Since(start)))
	}
	w.printf("\nAll %d steps passed in %s.\n", len(steps), rounded(time.Since(began)))
	return nil
}

func rounded(d time.Duration) time.Duration {
	if d < time.Second {
		return d.Round(time.Millisecond)
	}
	return d.Round(100 * time.Millisecond)
}
