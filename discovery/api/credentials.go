package api

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"time"

	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/discovery/fleet"
	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/internal/credentials"
)

const (
	// credentialsTTL is for how long credentials are used without asking for
	// the Secret again: leases are asked for more often than the API server
	// should be. A changed password is in use after that. While the API server does
	// not answer, what was read last stays in use: it is as current as all else that
	// is known of the fleet, and the same age ends it, that of the verdicts.
	credentialsTTL = 10 * time.Second
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
