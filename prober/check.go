package prober

import (
	"context"
	"errors"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/internal/credentials"
	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/prober/probe"
)

// secretTTL is how long credentials are cached. A proxy that refuses them invalidates
// the cache at once.
const secretTTL = time.Minute

// checker makes the probe of a job, with the credentials that the proxy requires.
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
	// The API server gets the same timeout as the proxy. It comes on top, but only
	// when nothing is cached.
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

// withoutCredentials returns the result of a probe without its Secret. A Secret that is
// missing, unlabelled or forbidden stays so until the configuration changes, and no
// crawler can use the proxy meanwhile: that is a failure, which makes it visible. An
// API server that times out shows nothing about the proxy: that is inconclusive.
func withoutCredentials(ctx context.Context, start time.Time, err error) probe.Result {
	switch {
	case ctx.Err() != nil:
		return probe.SetupResult(start, probe.Inconclusive, probe.ReasonCanceled, "canceled")
	case errors.Is(err, credentials.ErrRefused):
		return probe.SetupResult(start, probe.Failure, probe.ReasonCredentialsRefused, err.Error())
	case apierrors.IsForbidden(err):
		return probe.SetupResult(start, probe.Failure, probe.ReasonCredentialsForbidden,
			err.Error()+"; bind the prober's Role for credentials in this namespace")
	}
	return probe.SetupResult(start, probe.Inconclusive, probe.ReasonCredentialsUnavailable, err.Error())
}
