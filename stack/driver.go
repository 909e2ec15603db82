package stack

import (
	"context"
	"fmt"
	"time"

	"k8s.io/utils/ptr"
	"sigs.k8s.io/yaml"

	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/metacontroller"
	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/stack/upstream"
)

// driver is the program that calls our hooks and acts on their responses: the stand-in, or the real Metacontroller,
// which reads its controllers from the API server.
func (s *Stack) driver(ctx context.Context) (program, error) {
	c, err := metacontroller.DefaultController()
	if err != nil {
		return program{}, err
	}
	hooks := s.addrs.webhooks
	if s.cfg.HookRelay != nil {
		if hooks, err = s.cfg.HookRelay(hooks); err != nil {
			return program{}, fmt.Errorf("relay to the hooks: %w", err)
		}
	}
	if err := c.SetHookBaseURL("http://" + hooks + "/hooks"); err != nil {
		return program{}, err
	}
	if s.cfg.ResyncPeriod > 0 {
		c.Spec.ResyncPeriodSeconds = ptr.To(int32(s.cfg.ResyncPeriod / time.Second))
	}
	if s.cfg.Metacontroller == "" {
		return s.standInProgram(c)
	}
	cfg := s.controlPlane.RESTConfig()
	if err := upstream.InstallKinds(ctx, cfg); err != nil {
		return program{}, err
	}
	if err := upstream.Apply(ctx, cfg, c); err != nil {
		return program{}, err
	}
	return s.metacontrollerProgram(), nil
}

func (s *Stack) standInProgram(c *metacontroller.Controller) (program, error) {
	content, err := yaml.Marshal(c)
	if err != nil {
		return program{}, fmt.Errorf("encode the CompositeController: %w", err)
	}
	file, err := s.folder.write("compositecontroller.yaml", content)
	if err != nil {
		return program{}, err
	}
	return program{name: upstream.Name, path: ProgramStandIn, ops: s.addrs.opsDriver, args: []string{
		"--controller-file", file, "--kubeconfig", s.Kubeconfig(), "--ops-addr", s.addrs.opsDriver,
	}}, nil
}

func (s *Stack) metacontrollerProgram() program {
	options := upstream.Options{
		Kubeconfig:  s.Kubeconfig(),
		Strategy:    s.cfg.ApplyStrategy,
		MetricsAddr: s.addrs.metricsDriver,
		HealthAddr:  s.addrs.opsDriver,
	}
	return program{
		name: upstream.Name, path: s.cfg.Metacontroller, args: options.Args(),
		ops: s.addrs.opsDriver, metrics: s.addrs.metricsDriver,
	}
}

// Driver is the name of the program that calls the hooks, whichever binary runs.
func (s *Stack) Driver() string { return upstream.Name }

// driverName names the binary, for progress messages.
func (s *Stack) driverName() string {
	if s.cfg.Metacontroller == "" {
		return ProgramStandIn
	}
	return fmt.Sprintf("the real Metacontroller (%s, %s)", s.cfg.Metacontroller, s.cfg.ApplyStrategy)
}
