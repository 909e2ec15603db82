package api

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/promhttp"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes/fake"

	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/api/v1alpha1"
	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/internal/credentials"
)

const (
	canaryUser     = "CANARY-user-9d1e"
	canaryPassword = "CANARY-p@ss/word:77b0"
)

func bodyOf(s string) (io.ReadCloser, int64) {
	return io.NopCloser(strings.NewReader(s)), int64(len(s))
}

func canary(context.Context, string) (credentials.Credentials, error) {
	return credentials.New(canaryUser, canaryPassword), nil
}

// blockUntilGone calls gone and returns when the reader's context ends.
func blockUntilGone(gone func(), ended chan<- struct{}) func(context.Context, string) (credentials.Credentials, error) {
	return func(ctx context.Context, _ string) (credentials.Credentials, error) {
		defer close(ended)
		gone()
		<-ctx.Done()
		return credentials.Credentials{}, ctx.Err()
	}
}

func TestGrantHasCredentialsInItsURL(t *testing.T) {
	a := newAPI(t)
	a.secrets.read = canary
	a.fleet.set(aProxy("a", withSecret("login")))
	g := a.lease(`{}`)
	assert.Equal(t, "http://CANARY-user-9d1e:CANARY-p%40ss%2Fword%3A77b0@10.0.0.7:3128", g.ProxyURL)
	assert.Equal(t, []string{"crawl/login"}, a.secrets.reads)
}

func TestNextProxyIsTriedWhenCredentialsCannotBeRead(t *testing.T) {
	a := newAPI(t)
	a.secrets.read = func(ctx context.Context, key string) (credentials.Credentials, error) {
		if key == "crawl/good" {
			return canary(ctx, key)
		}
		return credentials.Credentials{}, errors.New("etcd is on fire")
	}
	a.fleet.set(aProxy("a", withSecret("bad")), aProxy("b", withSecret("bad")), aProxy("c", withSecret("good")))
	assert.Equal(t, "c", a.lease(`{}`).Proxy.Name)
	assert.Equal(t, []string{"crawl/bad", "crawl/good"}, a.secrets.reads, "a Secret that failed is not asked for again")
	for _, p := range a.list("").Proxies[:2] {
		assert.Zero(t, p.ActiveLeases, "what was not granted is given back")
	}
	a.fleet.set(aProxy("a", withSecret("bad")), aProxy("d"))
	assert.Equal(t, "d", a.lease(`{}`).Proxy.Name, "one that needs none is as good")
}

func TestCredentialsThatCannotBeRead(t *testing.T) {
	refused := func(_ context.Context, key string) (credentials.Credentials, error) {
		return credentials.Credentials{}, errors.Join(errors.New("secret "+key+" has no key \"password\""), credentials.ErrRefused)
	}
	broken := func(context.Context, string) (credentials.Credentials, error) {
		return credentials.Credentials{}, errors.New("internal gossip of the API server")
	}
	a := newAPI(t)
	a.fleet.set(aProxy("a", withSecret("login")), aProxy("sick", inPhase(v1alpha1.PhaseUnhealthy)))

	a.secrets.read = refused
	p := a.post("/v1/leases", `{}`).problem(http.StatusServiceUnavailable, codeCredentialsUnavailable)
	assert.Contains(t, p.Detail, `crawl/a needs those in the Secret login: secret crawl/login has no key "password"`)
	assert.Equal(t, 10, p.RetryAfterSeconds)

	a.secrets.read = broken
	p = a.post("/v1/leases", `{}`).problem(http.StatusServiceUnavailable, codeCredentialsUnavailable)
	assert.Contains(t, p.Detail, "the API server did not return it")
	assert.NotContains(t, p.Detail, "gossip")
	assert.Contains(t, a.logs.String(), "gossip", "but the log has it")
	assert.Zero(t, a.list("").Proxies[0].ActiveLeases)

	a.secrets.read = canary
	a.lease(`{}`)
}

// The Secret as kubectl creates it from files: discovery reads it with the same checks as
// the prober.
func TestSecretIsCheckedBeforeItIsGranted(t *testing.T) {
	for password, want := range map[string]string{
		"hush\n": "secret crawl/login: password ends with a newline; write the Secret from a file without one",
		"":       "",
	} {
		a := newAPI(t)
		a.fleet.set(aProxy("a", withSecret("login")))
		reader := credentials.NewReader(fake.NewClientset(&corev1.Secret{
			ObjectMeta: metav1.ObjectMeta{Namespace: "crawl", Name: "login", Labels: map[string]string{v1alpha1.LabelCredentials: v1alpha1.ValueTrue}},
			Data:       map[string][]byte{"username": []byte("key"), "password": []byte(password)},
		}))
		a.secrets.read = func(ctx context.Context, _ string) (credentials.Credentials, error) {
			return reader.Read(ctx, "crawl", "login")
		}
		if want == "" {
			assert.Equal(t, "http://key:@10.0.0.7:3128", a.lease(`{}`).ProxyURL, "an API key needs no password")
			continue
		}
		p := a.post("/v1/leases", `{}`).problem(http.StatusServiceUnavailable, codeCredentialsUnavailable)
		assert.Contains(t, p.Detail, want)
		assert.NotContains(t, p.Detail, "hush")
	}
}

// The API server answers, and our own rights are missing.
func TestForbiddenSecretNamesTheMissingRole(t *testing.T) {
	a := newAPI(t)
	a.fleet.set(aProxy("a", withSecret("login")))
	a.secrets.read = func(context.Context, string) (credentials.Credentials, error) {
		return credentials.Credentials{}, apierrors.NewForbidden(schema.GroupResource{Resource: "secrets"}, "login", errors.New("no Role"))
	}
	p := a.post("/v1/leases", `{}`).problem(http.StatusServiceUnavailable, codeCredentialsUnavailable)
	assert.Contains(t, p.Detail, "discovery may not read Secrets of the namespace crawl; give its ServiceAccount a Role there")
}

func TestNoRequestReadsSecretsForEver(t *testing.T) {
	a := newAPI(t)
	a.fleet.set(aProxy("a", withSecret("1")), aProxy("b", withSecret("2")), aProxy("c", withSecret("3")), aProxy("d", withSecret("4")), aProxy("e"))
	a.post("/v1/leases", `{}`).problem(http.StatusServiceUnavailable, codeCredentialsUnavailable)
	assert.Len(t, a.secrets.reads, maxCredentialFailures)
}

func TestCredentialsAreRememberedForSeconds(t *testing.T) {
	a := newAPI(t)
	a.secrets.read = canary
	a.fleet.set(aProxy("a", withSecret("login"), withMaxLeases(9)), aProxy("b", withSecret("other"), withMaxLeases(9)))
	for range 6 {
		a.lease(`{}`)
	}
	assert.ElementsMatch(t, []string{"crawl/login", "crawl/other"}, a.secrets.reads)
	a.clock.Step(credentialsTTL)
	a.secrets.read = func(context.Context, string) (credentials.Credentials, error) {
		return credentials.New("new", "secret"), nil
	}
	assert.Contains(t, a.lease(`{}`).ProxyURL, "new:secret@", "a changed password is in use")
	assert.Len(t, a.secrets.reads, 3)
}

// TestCredentialsStayInUseWhileTheAPIServerIsAway: leases do not end with it, as
// long as verdicts count.
func TestCredentialsStayInUseWhileTheAPIServerIsAway(t *testing.T) {
	a := newAPI(t)
	a.secrets.read = canary
	a.fleet.set(aProxy("a", withSecret("login"), withMaxLeases(99)))
	a.lease(`{}`)
	a.secrets.read = func(context.Context, string) (credentials.Credentials, error) {
		return credentials.Credentials{}, context.DeadlineExceeded
	}
	for range 20 {
		a.clock.Step(credentialsTTL / 2)
		assert.Contains(t, a.lease(`{}`).ProxyURL, canaryUser)
	}
	assert.LessOrEqual(t, len(a.secrets.reads), 11, "it is not asked each time")

	for _, no := range []error{
		fmt.Errorf("unlabelled: %w", credentials.ErrRefused),
		apierrors.NewForbidden(schema.GroupResource{Resource: "secrets"}, "login", errors.New("no Role")),
	} {
		a.secrets.read = canary
		a.clock.Step(credentialsTTL)
		a.lease(`{}`)
		a.secrets.read = func(context.Context, string) (credentials.Credentials, error) { return credentials.Credentials{}, no }
		a.clock.Step(credentialsTTL)
		for range 2 {
			a.post("/v1/leases", `{}`).problem(http.StatusServiceUnavailable, codeCredentialsUnavailable)
		}
	}
}

// It uses the whole API with canaries as token and credentials, and searches for them
// outside of grants.
func TestSecretsDoNotLeak(t *testing.T) {
	a := newAPI(t)
	a.secrets.read = canary
	a.fleet.set(aProxy("a", withSecret("login")))
	var seen strings.Builder
	look := func(r answer) {
		seen.WriteString(r.body)
		for k, v := range r.header {
			seen.WriteString(k + strings.Join(v, " "))
		}
	}
	g := a.lease(`{"target":"https://` + canaryUser + `:x@example.com/"}`)
	require.Contains(t, g.ProxyURL, canaryUser, "the one place where they belong")
	assert.Equal(t, "example.com", g.Target)
	look(a.get("/v1/proxies"))
	look(a.report(g.LeaseID, `{"result":"banned","target":"https://`+canaryUser+`:`+testToken+`@exa mple.com/"}`))
	look(a.report(g.LeaseID, `{"result":"banned"}`))
	look(a.post("/v1/leases", `{"target":"example.com"}`))
	look(a.post("/v1/leases", `{"selector":{"geo":"mars"}}`))
	look(a.send(http.MethodGet, "/v1/proxies", "", "Authorization", "Bearer wrong"))
	look(a.send(http.MethodGet, "/nowhere", ""))
	a.clock.Step(time.Hour)
	a.secrets.read = nil
	look(a.post("/v1/leases", `{}`))
	a.secrets.read = func(context.Context, string) (credentials.Credentials, error) { panic("broken") }
	look(a.post("/v1/leases", `{}`))
	look(a.delete("/v1/leases/" + g.LeaseID))

	scrape := httptest.NewRecorder()
	promhttp.HandlerFor(a.reg, promhttp.HandlerOpts{}).ServeHTTP(scrape, httptest.NewRequest(http.MethodGet, "/metrics", nil))
	for _, where := range []string{seen.String(), a.logs.String(), scrape.Body.String()} {
		require.NotEmpty(t, where)
		assert.NotContains(t, where, "CANARY")
	}
}
