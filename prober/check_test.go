package prober

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	clocktesting "k8s.io/utils/clock/testing"

	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/internal/credentials"
	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/prober/probe"
)

// secretStore is a fake of the API server's Secrets.
type secretStore struct {
	password string
	err      error
}

func (s *secretStore) Read(context.Context, string, string) (credentials.Credentials, error) {
	return credentials.New("crawler", s.password), s.err
}

func password(t *testing.T, c credentials.Credentials) string {
	t.Helper()
	p, _ := c.Userinfo().Password()
	return p
}

func forbidden() error {
	return fmt.Errorf("get secret: %w", apierrors.NewForbidden(schema.GroupResource{Resource: "secrets"}, "vendor", errors.New("no role")))
}

// jobWithSecret is a job whose proxy requires credentials.
func jobWithSecret() job {
	p := proxyProbeOf("a")
	o := specOf(p)
	o.secret = "vendor"
	return job{key: keyOf(p), spec: o}
}

func TestCheckSendsTheCredentials(t *testing.T) {
	store := &secretStore{password: "one"}
	var sent []string
	c := &checker{
		secrets: credentials.NewCache(store, secretTTL, clocktesting.NewFakeClock(epoch())),
		probe: func(_ context.Context, req probe.Request) probe.Result {
			if req.Credentials == nil {
				sent = append(sent, "none")
				return good(time.Millisecond)
			}
			sent = append(sent, password(t, *req.Credentials))
			if store.password != sent[len(sent)-1] {
				return bad(probe.ReasonProxyAuthRefused)
			}
			return good(time.Millisecond)
		},
	}
	assert.Equal(t, probe.Success, c.check(t.Context(), jobWithSecret()).Outcome)
	store.password = "two"
	assert.Equal(t, probe.ReasonProxyAuthRefused, c.check(t.Context(), jobWithSecret()).Reason)
	assert.Equal(t, probe.Success, c.check(t.Context(), jobWithSecret()).Outcome, "a rotation costs one probe")
	plain := jobWithSecret()
	plain.spec.secret = ""
	assert.Equal(t, probe.Success, c.check(t.Context(), plain).Outcome)
	assert.Equal(t, []string{"one", "one", "two", "none"}, sent)
}

func TestCheckWithoutCredentials(t *testing.T) {
	for _, tc := range []struct {
		err     error
		outcome probe.Outcome
		reason  probe.Reason
		text    string
	}{
		{fmt.Errorf("secret crawl/vendor does not exist: %w", credentials.ErrRefused), probe.Failure, probe.ReasonCredentialsRefused, "setup: secret crawl/vendor does not exist"},
		{forbidden(), probe.Failure, probe.ReasonCredentialsForbidden, "bind the prober's Role"},
		{errors.New("no API server"), probe.Inconclusive, probe.ReasonCredentialsUnavailable, "no API server"},
		{context.DeadlineExceeded, probe.Inconclusive, probe.ReasonCredentialsUnavailable, "deadline"},
	} {
		c := &checker{
			secrets: credentials.NewCache(&secretStore{err: tc.err}, secretTTL, clocktesting.NewFakeClock(epoch())),
			probe:   func(context.Context, probe.Request) probe.Result { panic("probed without the credentials") },
		}
		r := c.check(t.Context(), jobWithSecret())
		assert.Equal(t, tc.outcome, r.Outcome)
		assert.Equal(t, tc.reason, r.Reason)
		assert.Contains(t, r.Message, tc.text)
		assert.Equal(t, probe.StageSetup, r.Stage)

		ended, cancel := context.WithCancel(t.Context())
		cancel()
		assert.Equal(t, probe.ReasonCanceled, c.check(ended, jobWithSecret()).Reason)
	}
}
