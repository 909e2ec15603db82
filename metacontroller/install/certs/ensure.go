// Package certs creates the certificate authority (CA), the server certificate and the
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
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/util/validation"
)

// Action is what to renew in an existing folder.
type Action string

const (
	// Keep renews nothing and fails on an invalid folder.
	Keep Action = ""
	// RenewServer creates a server certificate with the same authority.
	RenewServer Action = "server"
	// RenewToken creates a token; webhooks accepts both.
	RenewToken Action = "token"
	// RenewCA creates an authority and a server certificate, or takes the
	// authority of --ca-file; Metacontroller trusts both authorities.
	RenewCA Action = "ca"
	// RenewAll renews everything, even in a damaged folder.
	RenewAll Action = "all"
)

// Options of Ensure. The zero value is invalid; start from DefaultOptions.
type Options struct {
	// Dir is the folder, which Ensure creates.
	Dir string
	// Namespace of webhooks.
	Namespace string
	// Service in front of webhooks.
	Service string
	// Port of the Service, in the CompositeController's URLs.
	Port int
	// ExtraNames are DNS names and IP addresses of the server certificate besides
	// the Service's.
	ExtraNames []string
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
	return Options{Namespace: "egress-proxies", Service: "webhooks", Port: 8443}
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
			bad("%s %q: want a Kubernetes name such as webhooks: lower-case letters, digits and -, at most 63", flag, label)
		}
	}
	if len(validation.IsValidPortNum(o.Port)) > 0 {
		bad("--port %d: want 1 to 65535", o.Port)
	}
	for _, name := range o.ExtraNames {
		if net.ParseIP(name) == nil && len(validation.IsDNS1123Subdomain(name)) > 0 {
			bad("--extra-names %q: want a DNS name or an IP address, without scheme and port", name)
		}
	}
	if !slices.Contains([]Action{Keep, RenewServer, RenewToken, RenewCA, RenewAll}, o.Action) {
		bad("--renew %q: want %s, %s, %s or %s", o.Action, RenewServer, RenewToken, RenewCA, RenewAll)
	}
	if o.Action == RenewServer && len(o.CA) > 0 {
		bad("--renew %s: with --ca-file the external authority makes the server certificate", RenewServer)
	}
	return errors.Join(errs...)
}

// ErrInUse: the folder holds material that this action must not overwrite.
var ErrInUse = errors.New("refusing to overwrite")

// Result of Ensure. It contains no secrets.
type Result struct {
	// Written is false if the folder was valid already.
	Written bool
	// SpecChanges: the CompositeController must be applied.
	SpecChanges bool
	// CA is the authority's certificate.
	CA *x509.Certificate
	// Server is the server certificate, nil with --ca-file.
	Server *x509.Certificate
	// Previous: the previous authority or token is still trusted.
	Previous bool
	// TokenID identifies the token.
	TokenID string
}

// Ensure writes valid material for opts into the folder. It is idempotent: with Keep
// it writes only into an empty or missing folder, changes nothing in a valid one, and
// otherwise returns an error that wraps ErrInUse, with the defects and the remedy. So
// does another action when a part that it keeps is invalid. A folder with foreign
// files is ErrForeign with every action. Errors and results contain no secrets.
func Ensure(opts Options, now time.Time) (Result, error) {
	if err := opts.Validate(); err != nil {
		return Result{}, err
	}
	for _, cert := range opts.CA {
		if now.After(cert.NotAfter) {
			return Result{}, fmt.Errorf("--ca-file: authority %q expired on %s", cert.Subject, cert.NotAfter.UTC().Format(time.DateOnly))
		}
	}
	onDisk, err := readFolder(opts.Dir)
	if err != nil {
		return Result{}, err
	}
	fresh := opts.Action == Keep || opts.Action == RenewAll
	if len(onDisk) == 0 && !fresh {
		return Result{}, fmt.Errorf("nothing to renew in %s: the folder is empty or missing; run without --renew", opts.Dir)
	}
	old := &material{}
	if len(onDisk) > 0 {
		m, err := onDisk.decode(opts.Dir)
		switch {
		case err == nil:
			old = m
		case opts.Action != RenewAll:
			return Result{}, fmt.Errorf("%w: %s is damaged: %w; --renew %s replaces everything in it", ErrInUse, opts.Dir, err, RenewAll)
		}
	}
	return update(opts, old, onDisk, now)
}

// update applies the action to a folder with the content old and onDisk.
func update(opts Options, old *material, onDisk files, now time.Time) (Result, error) {
	next := old.without(opts)
	found := next.problems(opts, now)
	if opts.Action == Keep && len(onDisk) > 0 && len(found) == 0 {
		found = onDisk.differences(old.render(opts))
	}
	if len(found) > 0 {
		return Result{}, fmt.Errorf("%w: %s is in use, and %s; use --renew %s, --renew %s or --renew %s, or --renew %s for everything",
			ErrInUse, opts.Dir, strings.Join(found, "; "), RenewServer, RenewToken, RenewCA, RenewAll)
	}
	if err := next.issue(opts, now); err != nil {
		return Result{}, err
	}
	r := next.result()
	want := next.render(opts)
	if len(onDisk.differences(want)) == 0 {
		return r, nil
	}
	r.Written = true
	r.SpecChanges = old.token != next.token || !sameCerts(old.bundle(), next.bundle())
	return r, want.write(opts.Dir)
}
