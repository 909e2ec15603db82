// Package certs creates the certificate authority, the server certificate and the
// bearer token between Metacontroller and our webhooks, and their Kubernetes
// manifests, in one folder that is a kustomize component.
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
	// DefaultCAValidity is long: a new CA requires an edit of the
	// CompositeController.
	DefaultCAValidity = 10 * 365 * 24 * time.Hour
	// DefaultServerValidity of the server certificate.
	DefaultServerValidity = 365 * 24 * time.Hour
	// RenewBefore is how long before its end a certificate is due for renewal.
	RenewBefore = 30 * 24 * time.Hour

	// minValidity keeps a new certificate from being due at once.
	minValidity = 2 * RenewBefore
)

// Action is what to renew in an existing folder.
type Action string

const (
	// Keep renews nothing and fails on an invalid folder.
	Keep Action = "keep"
	// RenewServer creates a server certificate with the same authority.
	RenewServer Action = "server"
	// RenewToken creates a token; webhooks accepts both.
	RenewToken Action = "token"
	// RenewCA creates an authority and a server certificate, or takes the
	// authority of --ca-file; Metacontroller trusts both authorities.
	RenewCA Action = "ca"
	// Replace renews everything, even in a damaged folder.
	Replace Action = "all"
)

// Options of Ensure. The zero value is invalid; start from DefaultOptions.
type Options struct {
	// Dir is the folder, which Ensure creates.
	Dir string
	// Namespace of webhooks.
	Namespace string
	// Service in front of webhooks.
	Service string
	// Port of the Service.
	Port int
	// ExtraNames are DNS names and IP addresses of the server certificate besides
	// the Service's.
	ExtraNames []string
	// CAValidity and ServerValidity of new certificates.
	CAValidity, ServerValidity time.Duration
	// CA is an external authority, such as cert-manager's, which also issues the
	// server certificate.
	CA []*x509.Certificate
	// Action on an existing folder.
	Action Action
	// DropPrevious revokes the previous authority and token: after a rotation, or
	// at once after a theft.
	DropPrevious bool
}

// DefaultOptions returns the options for the CompositeController in this repository,
// without Dir.
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

// Host is the host and port in the CompositeController's hook URLs. Metacontroller
// uses the CA and the token for exactly this host.
func (o Options) Host() string {
	return fmt.Sprintf("%s.%s.svc:%d", o.Service, o.Namespace, o.Port)
}

// Names are the names of the server certificate, without duplicates. Metacontroller
// calls SERVICE.NAMESPACE for a hook with `service:` instead of `url:`.
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

// Validate returns all errors of o, each with its flag.
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
		bad("--server-validity %s: want at least %s, since a certificate is due for renewal %s before its end", o.ServerValidity, minValidity, RenewBefore)
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
		bad("--renew %s: with --ca-file the external authority makes the server certificate", RenewServer)
	}
	return errors.Join(errs...)
}
