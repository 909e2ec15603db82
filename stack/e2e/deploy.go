package e2e

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/internal/process"
	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/metacontroller"
	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/metacontroller/install/certs"
	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/stack"
	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/stack/realnode"
	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/stack/supervise"
	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/stack/walk"
)

// rollout is how long our Pods may take to be Ready.
const rollout = 2 * time.Minute

const (
	discoverySecret = "discovery-token"
	webhooksHost    = "webhooks." + systemNamespace + ".svc"
)

// deploy applies what an SRE would: the manifests, and the Secrets beside them.
func (r *run) deploy(ctx context.Context) error {
	tls := r.tlsDir()
	opts := certs.DefaultOptions()
	opts.Dir = tls
	if _, err := certs.Ensure(opts, time.Now()); err != nil {
		return err
	}
	if err := r.apply(ctx, r.cfg.Manifests); err != nil {
		return err
	}
	for _, name := range []string{certs.FileTLS, certs.FileToken} {
		content, err := os.ReadFile(filepath.Join(tls, name))
		if err != nil {
			return err
		}
		if err := r.apply(ctx, content); err != nil {
			return err
		}
	}
	_, err := r.client.CoreV1().Secrets(systemNamespace).Create(ctx, &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Name: discoverySecret}, StringData: map[string]string{"token": rand.Text() + rand.Text()},
	}, metav1.CreateOptions{})
	if err != nil {
		return fmt.Errorf("make discovery's token: %w", err)
	}
	_, err = r.client.CoreV1().ConfigMaps(systemNamespace).Create(ctx, &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Name: "probe-ca"}, Data: map[string]string{"ca.crt": string(r.target.CertPEM)},
	}, metav1.CreateOptions{})
	if err != nil {
		return fmt.Errorf("make the probe target's authority known: %w", err)
	}
	return r.await(ctx, func(ctx context.Context) error {
		var errs []error
		for _, app := range []string{"webhooks", "prober", "discovery"} {
			_, err := r.pod(ctx, app)
			errs = append(errs, err)
		}
		return errors.Join(errs...)
	})
}

func (r *run) tlsDir() string { return filepath.Join(r.cfg.Dir, "tls") }

// apply uses kubectl, as people do. CRDs come first in what kustomize writes, and
// the first custom resources much later.
func (r *run) apply(ctx context.Context, manifests []byte) error {
	cmd := exec.CommandContext(ctx, r.cfg.Assets.Kubectl, "--kubeconfig", r.cp.Kubeconfig(), "apply", "--server-side", "-f", "-")
	cmd.Stdin = bytes.NewReader(manifests)
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("kubectl apply: %w: %s", err, out)
	}
	return nil
}

// pod returns the one Ready Pod of an app.
func (r *run) pod(ctx context.Context, app string) (*corev1.Pod, error) {
	pods, err := r.client.CoreV1().Pods(systemNamespace).List(ctx, metav1.ListOptions{LabelSelector: "app.kubernetes.io/name=" + app})
	if err != nil {
		return nil, fmt.Errorf("list Pods: %w", err)
	}
	for _, p := range pods.Items {
		for _, c := range p.Status.Conditions {
			if c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue {
				return &p, nil
			}
		}
	}
	return nil, fmt.Errorf("no Pod of %s is Ready: %s", app, describe(pods.Items))
}

// describe lists what Pods wait for.
func describe(pods []corev1.Pod) string {
	if len(pods) == 0 {
		return "there is none"
	}
	var b bytes.Buffer
	for _, p := range pods {
		fmt.Fprintf(&b, "%s is %s %s", p.Name, p.Status.Phase, p.Status.Message)
		for _, c := range p.Status.ContainerStatuses {
			switch {
			case c.State.Waiting != nil:
				fmt.Fprintf(&b, " (%s: %s)", c.State.Waiting.Reason, c.State.Waiting.Message)
			case c.State.Terminated != nil:
				fmt.Fprintf(&b, " (%s, exit code %d)", c.State.Terminated.Reason, c.State.Terminated.ExitCode)
			}
		}
	}
	return b.String()
}

func (r *run) await(ctx context.Context, check func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, rollout)
	defer cancel()
	if err := supervise.Until(ctx, 100*time.Millisecond, nil, check); err != nil {
		return fmt.Errorf("not within %s: %w", rollout, err)
	}
	return nil
}

// startStandIn runs the stand-in beside the node's Pods, with the URLs, the authority
// and the token that Metacontroller would have. There is no DNS: the name of
// webhooks' Service leads to its Pod by the file that resolvers read first.
func (r *run) startStandIn(ctx context.Context) error {
	webhooks, err := r.pod(ctx, "webhooks")
	if err != nil {
		return err
	}
	hosts := filepath.Join(r.cfg.Dir, "hosts")
	if err := os.WriteFile(hosts, []byte("127.0.0.1 localhost\n"+webhooks.Status.PodIP+" "+webhooksHost+"\n"), 0o644); err != nil {
		return err
	}
	if err := syscall.Mount(hosts, "/etc/hosts", "", syscall.MS_BIND, ""); err != nil {
		return fmt.Errorf("put a hosts file in place: %w", err)
	}
	controller := filepath.Join(r.cfg.Dir, "compositecontroller.yaml")
	c, err := metacontroller.DefaultController()
	if err != nil {
		return err
	}
	content, err := yaml.Marshal(c)
	if err != nil {
		return err
	}
	token, err := r.hookToken(ctx)
	if err != nil {
		return err
	}
	tokenFile := filepath.Join(r.cfg.Dir, "hook-token")
	if err := errors.Join(os.WriteFile(controller, content, 0o600), os.WriteFile(tokenFile, token, 0o600)); err != nil {
		return err
	}
	return r.start(process.Command{Name: stack.ProgramStandIn, Args: []string{
		"--controller-file", controller, "--kubeconfig", r.cp.Kubeconfig(), "--ops-addr", "127.0.0.1:8084",
		"--hook-ca", filepath.Join(r.tlsDir(), certs.FileCACert), "--hook-token-file", tokenFile,
	}})
}

func (r *run) hookToken(ctx context.Context) ([]byte, error) {
	s, err := r.client.CoreV1().Secrets(systemNamespace).Get(ctx, certs.SecretToken, metav1.GetOptions{})
	if err != nil {
		return nil, fmt.Errorf("read the hooks' token: %w", err)
	}
	return s.Data[certs.KeyToken], nil
}

// facts are what the walk needs.
func (r *run) facts(ctx context.Context) (walk.Stack, error) {
	discovery, err := r.pod(ctx, "discovery")
	if err != nil {
		return walk.Stack{}, err
	}
	token, err := r.client.CoreV1().Secrets(systemNamespace).Get(ctx, discoverySecret, metav1.GetOptions{})
	if err != nil {
		return walk.Stack{}, fmt.Errorf("read discovery's token: %w", err)
	}
	return walk.Stack{
		Kubectl: r.cfg.Assets.Kubectl, Kubeconfig: r.cp.Kubeconfig(), Namespace: fleetNamespace, Provider: provider,
		DiscoveryURL: "http://" + net.JoinHostPort(discovery.Status.PodIP, "8090"), Token: string(token.Data["token"]),
		TargetURL: r.target.URL, TargetCA: r.target.Pool(),
		ExternalHost: realnode.GatewayIP, ExternalPort: 3128,
		ContainerPID: r.node.PID,
	}, nil
}
