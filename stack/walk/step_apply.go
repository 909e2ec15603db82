package walk

import (
	"context"
	"fmt"
	"path"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/api/v1alpha1"
)

// The Proxies of the walk.
const (
	berlin    = "berlin"    // Managed
	paris     = "paris"     // Managed
	elsewhere = "elsewhere" // External
)

// The health check of all Proxies of the walk: fast, so that users need not wait.
const (
	probeInterval    = time.Second
	probeTimeout     = time.Second
	failureThreshold = 2
)

// detection is the time in which a proxy that fails must become Unhealthy, and discovery learn of
// it.
const detection = failureThreshold*(probeInterval+probeTimeout) + propagation

func (w *walker) healthCheck() *v1alpha1.HealthCheck {
	return &v1alpha1.HealthCheck{
		ProbeURL:         w.stack.TargetURL + "/echo",
		ExitProof:        &v1alpha1.ExitProof{},
		Interval:         metav1.Duration{Duration: probeInterval},
		Timeout:          metav1.Duration{Duration: probeTimeout},
		FailureThreshold: failureThreshold,
	}
}

// managed has the city of its name.
func (w *walker) managed(name string) *v1alpha1.Proxy {
	return &v1alpha1.Proxy{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: v1alpha1.ProxySpec{
			Mode:        v1alpha1.ModeManaged,
			Provider:    w.stack.Provider,
			Port:        3128,
			Attributes:  map[string]v1alpha1.AttributeValue{"geo": "eu", "city": v1alpha1.AttributeValue(name)},
			HealthCheck: w.healthCheck(),
		},
	}
}

func (w *walker) external() *v1alpha1.Proxy {
	return &v1alpha1.Proxy{
		ObjectMeta: metav1.ObjectMeta{Name: elsewhere},
		Spec: v1alpha1.ProxySpec{
			Mode:        v1alpha1.ModeExternal,
			Endpoint:    &v1alpha1.Endpoint{Host: w.stack.ExternalHost, Port: w.stack.ExternalPort},
			Attributes:  map[string]v1alpha1.AttributeValue{"geo": "us"},
			HealthCheck: w.healthCheck(),
		},
	}
}

// applyProxies is step 1.
func (w *walker) applyProxies(ctx context.Context) error {
	for _, p := range []*v1alpha1.Proxy{w.managed(berlin), w.managed(paris), w.external()} {
		if err := w.apply(ctx, p); err != nil {
			return err
		}
		w.say("applied proxy %s (%s)", p.Name, p.Spec.Mode)
	}
	if err := w.print(ctx, "px"); err != nil {
		return err
	}
	took, err := w.awaitReady(ctx, berlin, paris, elsewhere)
	if err != nil {
		return err
	}
	w.say("all are Ready after %s", rounded(took))
	if err := w.print(ctx, "px", "-o", "wide"); err != nil {
		return err
	}
	if err := w.showExits(ctx); err != nil {
		return err
	}
	return w.showPrograms(ctx)
}

// showExits prints the ProxyProbes, and checks that the exit IP of each proxy is its own address,
// as it is for Pods of the process node.
func (w *walker) showExits(ctx context.Context) error {
	for _, name := range []string{berlin, paris} {
		p, err := w.proxy(ctx, name)
		if err != nil {
			return err
		}
		var probe v1alpha1.ProxyProbe
		if err := w.get(ctx, v1alpha1.ProxyProbeResource(), name, &probe); err != nil {
			return err
		}
		if probe.Status.ExitIP != p.Status.IP {
			return fmt.Errorf("%s serves on %s, and the echo endpoint saw %q", name, p.Status.IP, probe.Status.ExitIP)
		}
	}
	return w.print(ctx, "pxp")
}

// showPrograms prints the program of each proxy, and records its process.
func (w *walker) showPrograms(ctx context.Context) error {
	for _, name := range []string{berlin, paris} {
		p, err := w.proxy(ctx, name)
		if err != nil {
			return err
		}
		pid, err := w.pid(ctx, p)
		if err != nil {
			return err
		}
		pod, err := w.pod(ctx, p)
		if err != nil {
			return err
		}
		program := pod.Status.ContainerStatuses[0].ImageID
		w.say("%s is Pod %s: process %d, %s", name, pod.Name, pid, program)
		if w.stack.RequireSquid && !strings.Contains(path.Base(program), "squid") {
			return fmt.Errorf("%s runs on %q, and squid is required here: install squid, or unset PX_REQUIRE_SQUID", name, program)
		}
	}
	return nil
}
