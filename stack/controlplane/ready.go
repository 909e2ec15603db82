package controlplane

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/stack/supervise"
)

const (
	readyPoll    = 50 * time.Millisecond // the interval of the readiness polls
	readyTimeout = 2 * time.Minute       // bounds the start on a slow, loaded machine
)

// AwaitReady waits for /readyz, and then does what the controller manager, which does not run
// here, would do next.
func (cp *ControlPlane) AwaitReady(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, readyTimeout)
	defer cancel()
	client, err := kubernetes.NewForConfig(cp.RESTConfig())
	if err != nil {
		return fmt.Errorf("make a client: %w", err)
	}
	if err := cp.poll(ctx, "/readyz", func(ctx context.Context) error {
		return client.Discovery().RESTClient().Get().AbsPath("/readyz").Do(ctx).Error()
	}); err != nil {
		return err
	}
	for _, namespace := range []string{metav1.NamespaceDefault, metav1.NamespaceSystem} {
		if err := cp.poll(ctx, "namespace "+namespace, func(ctx context.Context) error {
			return EnsureServiceAccount(ctx, client, namespace)
		}); err != nil {
			return err
		}
	}
	return nil
}

// poll calls try until it succeeds, ctx ends or the control plane does.
func (cp *ControlPlane) poll(ctx context.Context, what string, try func(context.Context) error) error {
	err := supervise.Until(ctx, readyPoll, cp.Err, try)
	if err == nil || cp.Err() != nil {
		return err
	}
	return fmt.Errorf("wait for %s: %w; last answer: %w; the logs are in %s", what, ctx.Err(), err, cp.layout.dir)
}

// EnsureServiceAccount creates the ServiceAccount "default" of a namespace, without which the API
// server rejects Pods there. In clusters the controller manager creates it. It is idempotent.
func EnsureServiceAccount(ctx context.Context, client kubernetes.Interface, namespace string) error {
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: "default"}}
	_, err := client.CoreV1().ServiceAccounts(namespace).Create(ctx, account, metav1.CreateOptions{})
	if err != nil && !apierrors.IsAlreadyExists(err) {
		return fmt.Errorf("make the default service account of namespace %s: %w", namespace, err)
	}
	return nil
}
