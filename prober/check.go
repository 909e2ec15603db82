package prober

import (
	"context"
	"errors"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/internal/credentials"
	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/prober/probe"
)

// secretTTL is how long credentials are used before they are read again. A proxy
// that refuses them has them read again at once.
const secretTTL = time.Minute

// checker makes the probe that a job asks for: it fetches the credentials, then
// probes.
type checker struct {
	probe   func(context.Context, probe.Request) probe.Result
	secrets *credentials.Cache
}

func (c *checker) check(ctx context.Context, j job) probe.Result {
	req := probe.Request{Host: j.spec.host, Port: j.spec.port, Scheme: j.spec.scheme, HealthCheck: j.spec.healthCheck, TestOpen: j.plan.testOpen}
	req.HealthCheck.ProbeURL = j.plan.url
	if j.spec.secret == "" {
		return c.probe(ctx, req)
	}
	start := time.Now()
	// The API server gets as long as the proxy would. That time comes on top, but
	// only when nothing is cached.
	limited, cancel := context.WithTimeout(ctx, req.HealthCheck.Timeout.Duration)
	creds, err := c.secrets.Read(limited, j.key.Namespace, j.spec.secret)
	cancel()
	if err != nil {
		return withoutCredentials(ctx, start, err)
	}
	req.Credentials = &creds
	r := c.probe(ctx, req)
	if r.Reason == probe.ReasonProxyAuthRefused {
		c.secrets.Doubt(j.key.Namespace, j.spec.secret) // it may have been rotated
	}
	return r
}

// withoutCredentials says what it means that credentialsRef yields none. A Secret
// that is missing, not meant for this, or closed to the prober stays so until
// somebody acts, and no crawler gets through meanwhile: that is a failure, and so
// becomes visible. An API server that does not answer says nothing about the
// proxy.
func withoutCredentials(ctx context.Context, start time.Time, err error) probe.Result {
	switch {
	case ctx.Err() != nil:
		return probe.SetupResult(start, probe.Inconclusive, probe.ReasonCanceled, "cut off")
	case errors.Is(err, credentials.ErrRefused):
		return probe.SetupResult(start, probe.Failure, probe.ReasonCredentialsRefused, err.Error())
	case apierrors.IsForbidden(err):
		return probe.SetupResult(start, probe.Failure, probe.ReasonCredentialsForbidden,
			err.Error()+"; bind the prober's Role for credentials in this namespace")
	}
	return probe.SetupResult(start, probe.Inconclusive, probe.ReasonCredentialsUnavailable, err.Error())
}
