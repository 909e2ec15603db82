package discovery

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/utils/clock"

	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/discovery/fleet"
	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/internal/credentials"
)

const (
	// credentialsTTL is for how long credentials are used without asking for
	// the Secret again: leases are asked for more often than the API server
	// should be. A changed password is in use after that.
	credentialsTTL = 10 * time.Second
	// credentialsIdle is for how long credentials that nobody asks for stay in
	// memory after that.
	credentialsIdle = 10 * time.Minute
	// credentialsTimeout bounds one read.
	credentialsTimeout = 5 * time.Second
	// maxCredentialFailures is after how many Secrets a request gives up.
	maxCredentialFailures = 3
)

// userinfo returns what belongs into the URL of p, nil when it asks for no
// password.
func (s *Server) userinfo(ctx context.Context, p *fleet.Proxy) (*url.Userinfo, error) {
	if p.CredentialsSecret == "" {
		return nil, nil
	}
	ctx, cancel := context.WithTimeout(ctx, credentialsTimeout)
	defer cancel()
	c, err := s.credentials.Read(ctx, p.Namespace, p.CredentialsSecret)
	if err != nil {
		return nil, err
	}
	return c.Userinfo(), nil
}

type credentialFailure struct {
	proxy *fleet.Proxy
	err   error
}

type credentialFailures []credentialFailure

// err makes the answer when none was left to try. What the API server said goes
// to the log alone; what somebody has to mend is told.
func (f credentialFailures) err() error {
	last := f[len(f)-1]
	why := "the API server did not give it out"
	if errors.Is(last.err, credentials.ErrRefused) {
		why = last.err.Error()
	}
	return &apiError{
		code:   codeCredentialsUnavailable,
		detail: fmt.Sprintf("proxies match, but their credentials cannot be read; %s needs those in the Secret %s: %s", last.proxy.Candidate.Proxy, last.proxy.CredentialsSecret, why),
		cause:  last.err,
	}
}

// credentialsCache remembers what a reader read. While the API server does not
// answer, what was read last stays in use: it is as current as all else that is
// known of the fleet, and the same age ends it, that of the verdicts.
type credentialsCache struct {
	reader CredentialsReader
	clock  clock.PassiveClock

	mu      sync.Mutex
	entries map[string]*cachedCredentials // by namespace/name
}

type cachedCredentials struct {
	credentials.Credentials
	until time.Time // when they are read again
}

func newCredentialsCache(reader CredentialsReader, clk clock.PassiveClock) *credentialsCache {
	return &credentialsCache{reader: reader, clock: clk, entries: map[string]*cachedCredentials{}}
}

// Read returns what is remembered, or else asks. The error is the reader's, and
// only there when nothing is remembered or the API server said no.
func (c *credentialsCache) Read(ctx context.Context, namespace, name string) (credentials.Credentials, error) {
	key := namespace + "/" + name
	last, known, fresh := c.lookup(key)
	if fresh {
		return last, nil
	}
	read, err := c.reader.Read(ctx, namespace, name)
	switch {
	case err == nil:
		c.remember(key, read)
		return read, nil
	case errors.Is(err, credentials.ErrRefused) || apierrors.IsForbidden(err):
		c.forget(key)
		return credentials.Credentials{}, err
	case known:
		return last, nil
	}
	return credentials.Credentials{}, err
}

// lookup finds what is remembered. Who finds it known and no longer fresh is to
// read it; it counts as fresh for all others meanwhile, for as long as a read may
// take, so that only one request waits for an API server that hangs.
func (c *credentialsCache) lookup(key string) (last credentials.Credentials, known, fresh bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	e, known := c.entries[key]
	if !known {
		return credentials.Credentials{}, false, false
	}
	now := c.clock.Now()
	if fresh = now.Before(e.until); !fresh {
		e.until = now.Add(credentialsTTL)
	}
	return e.Credentials, true, fresh
}

func (c *credentialsCache) remember(key string, read credentials.Credentials) {
	c.mu.Lock()
	defer c.mu.Unlock()
	now := c.clock.Now()
	for k, e := range c.entries {
		if now.Sub(e.until) >= credentialsIdle {
			delete(c.entries, k)
		}
	}
	c.entries[key] = &cachedCredentials{Credentials: read, until: now.Add(credentialsTTL)}
}

func (c *credentialsCache) forget(key string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.entries, key)
}
