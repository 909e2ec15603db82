// Package certs makes what Metacontroller and our webhooks need to trust each
// other: a certificate authority, a server certificate, a bearer token, and the
// Kubernetes manifests that put them in place. It keeps them in one folder, as a
// kustomize component.
package certs

import (
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"path/filepath"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/util/validation"
)

const (
	// DefaultNamespace is where webhooks runs.
	DefaultNamespace = "egress-proxies"
	// DefaultService is the Service in front of webhooks.
	DefaultService = "webhooks"
	// DefaultPort is the Service's port in the CompositeController's URLs.
	DefaultPort = 8443
	// DefaultCAValidity is long, since a new CA costs an edit of the
	// CompositeController.
	DefaultCAValidity = 10 * 365 * 24 * time.Hour
	// DefaultServerValidity of the server certificate.
	DefaultServerValidity = 365 * 24 * time.Hour
	// RenewBefore is how long before its end a certificate counts as in need
	// of renewal.
	RenewBefore = 30 * 24 * time.Hour

	// minValidity leaves a new certificate some life before RenewBefore.
	minValidity = 2 * RenewBefore
)

// Action says what to make anew of what is already in the folder.
type Action string

const (
	// Keep makes nothing anew: it leaves a sound folder alone and refuses to
	// touch any other.
	Keep Action = "keep"
	// RenewServer makes a new server certificate under the same authority.
	RenewServer Action = "server"
	// RenewToken makes a new token; webhooks is told to accept both.
	RenewToken Action = "token"
	// RenewCA makes a new authority, or takes the one given, and with it a new
	// server certificate; Metacontroller is told to trust both authorities.
	RenewCA Action = "ca"
	// Replace makes everything anew, also when the folder is damaged.
	Replace Action = "all"
)

// Options say what to make and where. The zero value is not usable; start from
// DefaultOptions.
type Options struct {
	// Dir is the folder, made when it is not there.
	Dir string
	// Namespace that webhooks runs in.
	Namespace string
	// Service in front of webhooks.
	Service string
	// Port of the Service.
	Port int
	// ExtraNames are DNS names and IP addresses that the server certificate
	// shall be valid for besides the Service's.
	ExtraNames []string
	// CAValidity and ServerValidity of new certificates.
	CAValidity, ServerValidity time.Duration
	// CA is somebody else's authority, such as cert-manager's, which then also
	// makes the server certificate. Empty makes both here.
	CA []*x509.Certificate
	// Action on an existing folder.
	Action Action
	// DropPrevious stops trusting the authority and the token that were
	// superseded: at once for the day when a key was stolen, else once
	// everybody uses the new ones.
	DropPrevious bool
}

// DefaultOptions returns the options that fit the CompositeController in this
// repository. Dir is left empty.
func DefaultOptions() Options {
	return Options{
		Namespace:      DefaultNamespace,
		Service:        DefaultService,
		Port:           DefaultPort,
		CAValidity:     DefaultCAValidity,
		ServerValidity: DefaultServerValidity,
		Action:         Keep,
	}
}

// Host is the host and port in the CompositeController's hook URLs. What
// Metacontroller sends there, and trusts there, depends on an exact match.
func (o Options) Host() string {
	return fmt.Sprintf("%s.%s.svc:%d", o.Service, o.Namespace, o.Port)
}

// Names are what the server certificate is valid for, without repetition.
// Metacontroller calls SERVICE.NAMESPACE when a hook has `service:` in place of
// `url:`.
func (o Options) Names() []string {
	base := o.Service + "." + o.Namespace
	names := []string{base + ".svc", base + ".svc.cluster.local", base}
	for _, extra := range o.ExtraNames {
		if !slices.Contains(names, extra) {
			names = append(names, extra)
		}
	}
	return names
}

// Validate returns everything that is wrong with o, each with its flag.
func (o Options) Validate() error {
	var errs []error
	bad := func(format string, args ...any) { errs = append(errs, fmt.Errorf(format, args...)) }
	if o.Dir == "" || o.Dir == string(filepath.Separator) {
		bad("--out %q: want a folder of its own", o.Dir)
	}
	for flag, label := range map[string]string{"--namespace": o.Namespace, "--service": o.Service} {
		if len(validation.IsDNS1123Label(label)) > 0 {
			bad("%s %q: want a Kubernetes name such as %s: lower-case letters, digits and -, at most 63", flag, label, DefaultService)
		}
	}
	if o.Port < 1 || o.Port > 65535 {
		bad("--port %d: want 1 to 65535", o.Port)
	}
	for _, name := range o.ExtraNames {
		if net.ParseIP(name) == nil && len(validation.IsDNS1123Subdomain(name)) > 0 {
			bad("--extra-names %q: want a DNS name or an IP address, without scheme and port", name)
		}
	}
	if o.ServerValidity < minValidity {
		bad("--server-validity %s: want at least %s, since a certificate counts as due for renewal %s before its end", o.ServerValidity, minValidity, RenewBefore)
	}
	if o.CAValidity < o.ServerValidity {
		bad("--ca-validity %s: want at least --server-validity (%s), or certificates would outlive their authority", o.CAValidity, o.ServerValidity)
	}
	switch o.Action {
	case Keep, RenewServer, RenewToken, RenewCA, Replace:
	default:
		bad("--renew %q: want %s, %s or %s", o.Action, RenewServer, RenewToken, RenewCA)
	}
	if o.Action == RenewServer && len(o.CA) > 0 {
		bad("--renew %s: with --ca-file somebody else makes the server certificate", RenewServer)
	}
	return errors.Join(errs...)
}
