package certs

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/hex"
	"encoding/pem"
	"fmt"
	"net"
	"slices"
	"strings"
	"time"

	"k8s.io/client-go/util/cert"
	"k8s.io/client-go/util/keyutil"
)

const (
	// CAValidity is long: a new CA requires an edit of the CompositeController.
	CAValidity = 10 * 365 * 24 * time.Hour
	// ServerValidity of the server certificate.
	ServerValidity = 365 * 24 * time.Hour
	// RenewBefore is how long before its end a certificate is due for renewal.
	RenewBefore = 30 * 24 * time.Hour

	// backdate tolerates a clock that is behind.
	backdate = time.Hour
)

// material is the decoded content of a folder. A missing part is nil.
type material struct {
	// current authorities: ours, or those of --ca-file.
	current []*x509.Certificate
	// previous authorities that are still trusted.
	previous []*x509.Certificate
	// ca is the first of current with its key; ca and server are nil with --ca-file.
	ca, server *pair
	token      string
	// previousToken is still accepted by webhooks, unless it is empty.
	previousToken string
}

// pair is a certificate with its key, also as PEM.
type pair struct {
	tls.Certificate
	certPEM, keyPEM []byte
}

func newPair(certPEM, keyPEM []byte) (*pair, error) {
	c, err := tls.X509KeyPair(certPEM, keyPEM)
	return &pair{c, certPEM, keyPEM}, err
}

// tokenID identifies a token: 8 hex digits of its SHA-256, too few to guess 256
// random bits. It is a part of the token's key in the Secret, because Metacontroller
// reads a token only when the CompositeController's spec changes, and from a cache
// that may be stale: under a constant key it could keep the old token.
func tokenID(token string) string {
	sum := sha256.Sum256([]byte(token))
	return hex.EncodeToString(sum[:4])
}

// bundle are the authorities that Metacontroller trusts.
func (m *material) bundle() []*x509.Certificate { return slices.Concat(m.current, m.previous) }

func (m *material) result() Result {
	r := Result{CA: m.current[0], Previous: len(m.previous) > 0 || m.previousToken != "", TokenID: tokenID(m.token)}
	if m.server != nil {
		r.Server = m.server.Leaf
	}
	return r
}

// without returns a copy of m without the parts that the action renews. They become
// the previous ones, unless those are dropped.
func (m *material) without(opts Options) *material {
	next, all := *m, opts.Action == RenewAll
	if all || opts.Action == RenewToken {
		next.token, next.previousToken = "", m.token
	}
	if all || opts.Action == RenewCA {
		next.current, next.ca = nil, nil
		if !sameCerts(m.current, opts.CA) { // otherwise the same --ca-file again
			next.previous = m.current
		}
	}
	if all || opts.Action == RenewCA || opts.Action == RenewServer {
		next.server = nil
	}
	if opts.DropPrevious {
		next.previous, next.previousToken = nil, ""
	}
	return &next
}

// problems returns the defects of the parts of m, for the error message.
func (m *material) problems(opts Options, now time.Time) []string {
	if len(m.current) == 0 {
		return nil
	}
	found := due("the authority's certificate", m.current[0], now)
	switch {
	case m.ca != nil && len(opts.CA) > 0:
		return append(found, "it was made without --ca-file, and this run is with --ca-file")
	case m.ca == nil && len(opts.CA) == 0:
		return append(found, "it was made with --ca-file, and this run is without --ca-file")
	case !sameCerts(m.current, opts.CA) && m.ca == nil:
		return append(found, "--ca-file holds another authority than it")
	case m.server == nil || opts.Action == RenewToken || opts.DropPrevious:
		return found // a stolen token is renewed whatever the server certificate is like
	}
	leaf := m.server.Leaf
	found = append(found, due("the server certificate", leaf, now)...)
	if err := leaf.CheckSignatureFrom(m.ca.Leaf); err != nil {
		found = append(found, "the server certificate is not the authority's: "+err.Error())
	}
	missing := slices.DeleteFunc(opts.Names(), func(name string) bool { return leaf.VerifyHostname(name) == nil })
	if len(missing) > 0 {
		found = append(found, "the server certificate is not valid for "+strings.Join(missing, ", "))
	}
	return found
}

// due reports a certificate that is expired or due for renewal.
func due(what string, cert *x509.Certificate, now time.Time) []string {
	end := cert.NotAfter.UTC().Format(time.DateOnly)
	switch {
	case now.After(cert.NotAfter):
		return []string{what + " expired on " + end}
	case now.Add(RenewBefore).After(cert.NotAfter):
		return []string{what + " expires soon, on " + end}
	}
	return nil
}

func sameCerts(a, b []*x509.Certificate) bool {
	return slices.EqualFunc(a, b, (*x509.Certificate).Equal)
}

// issue creates the missing parts of m. With --ca-file it creates no certificates.
func (m *material) issue(opts Options, now time.Time) (err error) {
	if m.token == "" {
		m.token = rand.Text() + rand.Text() // 256 random bits and more, as letters and digits
	}
	switch {
	case len(opts.CA) > 0:
		m.current = opts.CA
		return nil
	case m.ca == nil:
		if m.ca, err = newAuthority(opts, now); err != nil {
			return fmt.Errorf("create the authority: %w", err)
		}
		m.current = []*x509.Certificate{m.ca.Leaf}
	}
	if m.server == nil {
		if m.server, err = newServer(opts, m.ca, now); err != nil {
			return fmt.Errorf("create the server certificate: %w", err)
		}
	}
	return nil
}

// newAuthority creates an authority that can only sign server certificates.
func newAuthority(opts Options, now time.Time) (*pair, error) {
	return sign(x509.Certificate{
		// The date distinguishes the authorities of a bundle.
		Subject:               pkix.Name{CommonName: fmt.Sprintf("%s/%s CA %s", opts.Namespace, opts.Service, now.UTC().Format(time.DateOnly))},
		NotBefore:             now.Add(-backdate),
		NotAfter:              now.Add(CAValidity),
		IsCA:                  true,
		BasicConstraintsValid: true,
		MaxPathLenZero:        true,
		KeyUsage:              x509.KeyUsageCertSign,
	}, nil)
}

// newServer creates the server's key and certificate, which expires with the authority
// at the latest.
func newServer(opts Options, ca *pair, now time.Time) (*pair, error) {
	template := x509.Certificate{
		Subject:     pkix.Name{CommonName: opts.Host()},
		NotBefore:   now.Add(-backdate),
		NotAfter:    now.Add(ServerValidity),
		KeyUsage:    x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	}
	if end := ca.Leaf.NotAfter; template.NotAfter.After(end) {
		template.NotAfter = end
	}
	for _, name := range opts.Names() {
		if ip := net.ParseIP(name); ip != nil {
			template.IPAddresses = append(template.IPAddresses, ip)
		} else {
			template.DNSNames = append(template.DNSNames, name)
		}
	}
	return sign(template, ca)
}

// sign creates a key and its certificate, signed by ca or, if that is nil, by itself.
func sign(template x509.Certificate, ca *pair) (*pair, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	parent, parentKey := &template, crypto.PrivateKey(key)
	if ca != nil {
		parent, parentKey = ca.Leaf, ca.PrivateKey
	}
	der, err := x509.CreateCertificate(rand.Reader, &template, parent, key.Public(), parentKey)
	if err != nil {
		return nil, err
	}
	keyPEM, err := keyutil.MarshalPrivateKeyToPEM(key)
	if err != nil {
		return nil, err
	}
	return newPair(pem.EncodeToMemory(&pem.Block{Type: cert.CertificateBlockType, Bytes: der}), keyPEM)
}
