package prober

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/api/v1alpha1"
	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/prober/probetest"
)

const canary = "CANARY-91be"

// secret stores labelled credentials whose username has the canary.
func (c *cluster) secret(password string) {
	c.t.Helper()
	client, err := kubernetes.NewForConfig(c.config)
	require.NoError(c.t, err)
	secrets := client.CoreV1().Secrets("default")
	s := &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Name: "vendor", Labels: map[string]string{v1alpha1.LabelCredentials: "true"}},
		StringData: map[string]string{"username": "crawler-" + canary, "password": password},
	}
	_, err = secrets.Create(c.t.Context(), s, metav1.CreateOptions{})
	if apierrors.IsAlreadyExists(err) {
		_, err = secrets.Update(c.t.Context(), s, metav1.UpdateOptions{})
	} else {
		c.t.Cleanup(func() {
			assert.NoError(c.t, secrets.Delete(context.Background(), s.Name, metav1.DeleteOptions{}))
		})
	}
	require.NoError(c.t, err)
}

func TestCredentialsAreUsedAndNeverShown(t *testing.T) {
	c := newCluster(t)
	ca := probetest.NewCA(t)
	target := probetest.ServeTLS(t, ca.Certificate(t, targetName, time.Now().Add(time.Hour)), probetest.Status(204))
	asks := func(password string) probetest.Behaviour {
		return probetest.Forward(probetest.To(target.Addr), probetest.RequireBasic("crawler-"+canary, password))
	}
	s := newSceneAt(t, "secret", ca, asks(canary))
	s.probe.Spec.CredentialsRef = &v1alpha1.CredentialsRef{Name: "vendor"}

	p := c.start(s)
	c.create(s.swift())
	st := c.becomes("secret", unhealthy, "CredentialsRefused")
	assert.Contains(t, st.Message, "secret default/vendor does not exist")
	c.secret(canary)
	c.becomes("secret", healthy, "ProbeSucceeded")

	s.proxy.Set(asks("rotated"))
	c.becomes("secret", unhealthy, "ProxyAuthRefused")
	c.secret("rotated")
	c.becomes("secret", healthy, "ProbeSucceeded")

	p.stop()
	for what, text := range map[string]string{"logs": p.logs.String(), "metrics": dump(t, p), "objects": c.everything()} {
		require.Contains(t, text, "secret", what)
		assert.NotContains(t, text, canary, what)
		for _, password := range []string{canary, "rotated"} {
			assert.NotContains(t, text, base64.StdEncoding.EncodeToString([]byte("crawler-"+canary+":"+password)), what)
		}
	}
}

func dump(t *testing.T, p *process) string {
	t.Helper()
	families, err := p.registry.Gather()
	require.NoError(t, err)
	text := ""
	for _, f := range families {
		text += f.String() + "\n"
	}
	return text
}

// everything is all ProxyProbes of the test as JSON.
func (c *cluster) everything() string {
	c.t.Helper()
	list, err := c.objects.List(c.t.Context(), metav1.ListOptions{})
	require.NoError(c.t, err)
	b, err := json.Marshal(list)
	require.NoError(c.t, err)
	return string(b)
}
