package api

import (
	"context"
	"errors"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/discovery/fleet"
	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/internal/credentials"
)

const (
	// credentialsTTL is how long credentials are cached: a read per lease would
	// overload the API server. A changed password is in use after that. While the
	// API server is down the cached one stays in use; it is as current as the rest
	// of the snapshot, and the age of the verdicts bounds both.
	credentialsTTL = 10 * time.Second
	// credentialsTimeout bounds one read.
	credentialsTimeout = 5 * time.Second
	// maxCredentialFailures is after how many unreadable Secrets a request fails.
	maxCredentialFailures = 3
)

// login returns the credentials of p, nil when it needs none.
func (s *Server) login(ctx context.Context, p *fleet.Proxy) (*login, error) {
	if p.CredentialsSecret == "" {
		return nil, nil
	}
	ctx, cancel := context.WithTimeout(ctx, credentialsTimeout)
	defer cancel()
	c, err := s.credentials.Read(ctx, p.Namespace, p.CredentialsSecret)
	if err != nil {
		return nil, err
	}
	user := c.Userinfo()
	password, _ := user.Password()
	return &login{user.Username(), password}, nil
}

type credentialFailure struct {
	proxy *fleet.Proxy
	err   error
}

type credentialFailures []credentialFailure

// err is the answer when no proxy is left to try. Errors of the API server are only
// logged; a wrong Secret is named, since its owner must fix it.
func (f credentialFailures) err() error {
	last := f[len(f)-1]
	why := "the API server did not return it"
	switch {
	case errors.Is(last.err, credentials.ErrRefused):
		why = last.err.Error()
	case apierrors.IsForbidden(last.err):
		why = "discovery may not read Secrets of the namespace " + last.proxy.Namespace + "; give its ServiceAccount a Role there with the verb get on secrets"
	}
	return &apiError{
		code:   codeCredentialsUnavailable,
		detail: fmt.Sprintf("proxies match, but their credentials cannot be read; %s needs those in the Secret %s: %s", last.proxy.Candidate.Proxy, last.proxy.CredentialsSecret, why),
		cause:  last.err,
	}
}
