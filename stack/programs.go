package stack

import (
	"context"
	"fmt"
	"strconv"
	"time"

	"golang.org/x/sync/errgroup"
)

// Hosts of the stack's subnet. The process node gives later ones to Pods. Control plane and target
// pick their ports, each on a host of its own.
const (
	hostServices     = 1
	hostExternal     = 2
	hostControlPlane = 3
	hostTarget       = 4
	hostVisitors     = 5
)

// addresses are the listen addresses of the parts.
type addresses struct {
	webhooks, external                         string
	opsWebhooks, opsDriver, opsProber, opsNode string
	cloudEngine, opsCloud                      string
	// discovery and opsDiscovery are those of each discovery process, in their order.
	discovery, opsDiscovery []string
	// metricsDriver is the metrics address of the real Metacontroller, which differs from its
	// health address.
	metricsDriver string
}

// choose picks a free address for every part.
func (a *addresses) choose(s *subnet, discoveries int) error {
	a.discovery, a.opsDiscovery = make([]string, discoveries), make([]string, discoveries)
	wanted := []*string{
		&a.webhooks, &a.opsWebhooks, &a.opsDriver, &a.metricsDriver, &a.opsProber, &a.opsNode, &a.cloudEngine, &a.opsCloud,
	}
	for i := range discoveries {
		wanted = append(wanted, &a.discovery[i], &a.opsDiscovery[i])
	}
	var err error
	for _, addr := range wanted {
		if *addr, err = s.freePort(hostServices); err != nil {
			return err
		}
	}
	a.external, err = s.freePort(hostExternal)
	return err
}

// webhooksProgram polls more often than in a cluster, so that users need not wait.
func (s *Stack) webhooksProgram(providers string) program {
	return program{name: programWebhooks, ops: s.addrs.opsWebhooks, args: []string{
		"--listen", s.addrs.webhooks, "--insecure", "--providers-config", providers, "--cloud-socket", s.CloudSocket(),
		"--provisioning-poll", "1s", "--deletion-poll", "1s", "--budget-poll", "1s", "--drift-poll", "10s",
		"--cloud-init-secrets=" + strconv.FormatBool(s.cfg.CloudInitSecrets),
		"--kubeconfig", s.Kubeconfig(), "--ops-addr", s.addrs.opsWebhooks,
	}}
}

func (s *Stack) proberProgram(probeCA string) program {
	return program{name: programProber, ops: s.addrs.opsProber, args: []string{
		"--probe-ca", probeCA, "--system-namespace", namespace,
		"--kubeconfig", s.Kubeconfig(), "--ops-addr", s.addrs.opsProber,
	}}
}

func (s *Stack) discoveryProgram(i int, d Discovery) program {
	addr, opsAddr := s.addrs.discovery[i], s.addrs.opsDiscovery[i]
	return program{name: d.Name, path: programDiscovery, ops: opsAddr, env: []string{"DISCOVERY_TOKEN=" + s.token}, args: []string{
		"--addr", addr, "--lease-store", d.LeaseStore, "--system-namespace", namespace,
		"--kubeconfig", s.Kubeconfig(), "--ops-addr", opsAddr,
	}}
}

func (s *Stack) nodeProgram() program {
	return program{name: programNode, ops: s.addrs.opsNode, args: []string{
		"--subnet", s.subnet.prefix.String(), "--root", s.podRoot,
		"--squid", s.cfg.Squid, "--connect-proxy", s.cfg.program(programConnectProxy),
		"--kubeconfig", s.Kubeconfig(), "--ops-addr", s.addrs.opsNode,
	}}
}

// externalProgram is a proxy of others, for External Proxies.
func (s *Stack) externalProgram() program {
	return program{name: programConnectProxy, listens: s.addrs.external, args: []string{
		"--listen", s.addrs.external, "--allow-client", "127.0.0.0/8",
		"--allow-destination", s.subnet.prefix.String(), "--allow-port", strconv.Itoa(s.target.Port()),
	}}
}

// targetCAFile is in the stack's folder.
const targetCAFile = "probe-ca.pem"

// startPrograms starts all programs, and waits until they are ready.
func (s *Stack) startPrograms(ctx context.Context) error {
	began := time.Now()
	programs, err := s.listPrograms(ctx)
	if err != nil {
		return err
	}
	for _, p := range programs {
		c := s.newChild(p)
		if err := c.Start(); err != nil {
			return fmt.Errorf("start the stack: %w", err)
		}
		s.children = append(s.children, c)
	}
	group, ctx := errgroup.WithContext(ctx)
	for _, c := range s.children {
		group.Go(func() error { return c.awaitReady(ctx) })
	}
	if err := group.Wait(); err != nil {
		return err
	}
	s.progress("webhooks, %s, prober, discovery, node and cloud are ready after %s", s.driverName(), time.Since(began).Round(10*time.Millisecond))
	return nil
}

// listPrograms writes the programs' files and returns their commands.
func (s *Stack) listPrograms(ctx context.Context) ([]program, error) {
	driver, err := s.driver(ctx)
	if err != nil {
		return nil, err
	}
	providers, err := s.renderProviders()
	if err != nil {
		return nil, err
	}
	probeCA, err := s.folder.write(targetCAFile, s.target.CertPEM)
	if err != nil {
		return nil, err
	}
	cloudEngine, err := s.cloudEngineProgram()
	if err != nil {
		return nil, err
	}
	programs := []program{
		s.externalProgram(), s.nodeProgram(), cloudEngine, s.cloudProgram(providers), s.webhooksProgram(providers),
		driver, s.proberProgram(probeCA),
	}
	for i, d := range s.cfg.discoveries() {
		programs = append(programs, s.discoveryProgram(i, d))
	}
	return programs, nil
}
