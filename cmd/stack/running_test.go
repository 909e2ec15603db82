package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"

	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/api/v1alpha1"
	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/stack"
	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/stack/controlplane/controlplanetest"
	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/stack/walk"
)

const (
	fleetPatience = 2 * time.Minute
	fleetPoll     = 100 * time.Millisecond
)

// running is a stack in this process, with child processes as usual, and clients for it.
type running struct {
	t     *testing.T
	stack *stack.Stack
	facts walk.Stack
	api   dynamic.Interface
	core  kubernetes.Interface
	// began is when the stack was ready.
	began time.Time
}

// run starts a stack, which is stopped when the test ends.
func (r *rig) run(cfg stack.Config) *running {
	r.t.Helper()
	cfg.Home, cfg.BinDir, cfg.Assets = filepath.Join(r.tmp, "home"), binDir, controlplanetest.Assets(r.t)
	cfg.Log, cfg.Progress, cfg.Squid = slog.New(slog.DiscardHandler), io.Discard, "auto"
	s, err := stack.Start(r.t.Context(), cfg)
	require.NoError(r.t, err)
	r.t.Cleanup(func() { assert.NoError(r.t, s.Stop(false)) })
	run := &running{t: r.t, stack: s, began: time.Now()}
	run.facts, err = s.ForWalk(false)
	require.NoError(r.t, err)
	run.api, err = dynamic.NewForConfig(s.RESTConfig())
	require.NoError(r.t, err)
	run.core, err = kubernetes.NewForConfig(s.RESTConfig())
	require.NoError(r.t, err)
	return run
}

// TestOnOneStack has the tests that need a whole stack, with the stand-in for Metacontroller. They share
// one; each removes its objects.
func TestOnOneStack(t *testing.T) {
	r := newRig(t).run(stack.Config{CloudInitSecrets: true})
	for _, tt := range []struct {
		name string
		test func(*running)
	}{
		{"cloud adapter is killed", killTheAdapter},
		{"orphan does not block the next Proxy of its name", orphanDoesNotBlockTheNextProxyOfItsName},
		// A small fleet; hooktest has fifty. It comes last: its Secrets must not be in any log or object.
		{"shared Secret is rotated", func(r *running) { shareAndRotate(r, size{sharers: 12, loners: 3}) }},
	} {
		ok := t.Run(tt.name, func(t *testing.T) {
			on := *r
			on.t = t
			tt.test(&on)
		})
		if !ok {
			return // its objects may be left
		}
	}
}

func (r *running) proxies() dynamic.ResourceInterface {
	return r.api.Resource(v1alpha1.ProxyResource()).Namespace(r.facts.Namespace)
}

// managed creates a Managed Proxy, with cloud-init from that Secret if any.
func (r *running) managed(name, secret string) {
	r.t.Helper()
	p := &v1alpha1.Proxy{Spec: v1alpha1.ProxySpec{Mode: v1alpha1.ModeManaged, Provider: r.facts.Provider}}
	if secret != "" {
		p.Spec.CloudInit = &v1alpha1.CloudInit{SecretRef: &v1alpha1.SecretKeyRef{Name: secret, Key: "user-data"}}
	}
	r.create(name, p)
}

func (r *running) create(name string, p *v1alpha1.Proxy) {
	r.t.Helper()
	p.TypeMeta = metav1.TypeMeta{APIVersion: v1alpha1.GroupVersion().String(), Kind: "Proxy"}
	p.Name = name
	p.Spec.HealthCheck = &v1alpha1.HealthCheck{
		ProbeURL: r.facts.TargetURL + "/generate_204", Interval: metav1.Duration{Duration: 5 * time.Second}, Timeout: metav1.Duration{Duration: 4 * time.Second},
	}
	content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(p)
	require.NoError(r.t, err)
	delete(content, "status")
	_, err = r.proxies().Create(r.t.Context(), &unstructured.Unstructured{Object: content}, metav1.CreateOptions{FieldValidation: metav1.FieldValidationStrict})
	require.NoError(r.t, err)
}

// secret creates a Secret that is labelled for one purpose, or for none.
func (r *running) secret(name, label string, data map[string]string) {
	r.t.Helper()
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: name}, StringData: data}
	if label != "" {
		secret.Labels = map[string]string{label: v1alpha1.ValueTrue}
	}
	_, err := r.core.CoreV1().Secrets(r.facts.Namespace).Create(r.t.Context(), secret, metav1.CreateOptions{})
	require.NoError(r.t, err)
}

// statuses are the statuses of all Proxies, by name.
func (r *running) statuses() map[string]v1alpha1.ProxyStatus {
	r.t.Helper()
	list, err := r.proxies().List(r.t.Context(), metav1.ListOptions{})
	require.NoError(r.t, err)
	out := map[string]v1alpha1.ProxyStatus{}
	for _, obj := range list.Items {
		var p v1alpha1.Proxy
		require.NoError(r.t, v1alpha1.FromUnstructured(obj.Object, &p))
		out[p.Name] = p.Status
	}
	return out
}

// leasable returns the Proxies that discovery would lease now.
func (r *running) leasable(ctx context.Context) (map[string]bool, error) {
	var body struct {
		Proxies []struct {
			Name     string
			Leasable bool
		}
	}
	text, err := get(ctx, r.facts.DiscoveryURL+"/v1/proxies", r.facts.Token)
	if err != nil {
		return nil, err
	}
	if err := json.Unmarshal(text, &body); err != nil {
		return nil, err
	}
	out := map[string]bool{}
	for _, p := range body.Proxies {
		if p.Leasable {
			out[p.Name] = true
		}
	}
	return out, nil
}

func get(ctx context.Context, url, token string) ([]byte, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return nil, err
	}
	if token != "" {
		req.Header.Set("Authorization", "Bearer "+token)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err == nil && resp.StatusCode != http.StatusOK {
		err = fmt.Errorf("GET %s: %s: %s", url, resp.Status, body)
	}
	return body, err
}

// eventually polls a condition, and fails the test after a timeout.
func (r *running) eventually(what string, condition func() bool) {
	r.t.Helper()
	for end := time.Now().Add(fleetPatience); !condition(); time.Sleep(fleetPoll) {
		require.True(r.t, time.Now().Before(end), "not within %s: %s", fleetPatience, what)
	}
	r.t.Logf("%s after %s", what, time.Since(r.began).Round(100*time.Millisecond))
}
