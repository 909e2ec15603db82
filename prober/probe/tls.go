package probe

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"os"
	"time"
)

// handshake does the TLS handshake with the target and verifies its certificate.
func (a *attempt) handshake(_ context.Context) error {
	return a.secure(a.target.host, certificateReasons{
		untrusted: ReasonTLSUntrusted, name: ReasonTLSNameMismatch, expired: ReasonTLSExpired,
		why: "the proxy intercepts TLS, or --probe-ca lacks the authority",
	})
}

// secureProxy does the TLS handshake with the proxy itself and verifies its certificate.
func (a *attempt) secureProxy(_ context.Context) error {
	return a.secure(a.req.Host, certificateReasons{
		untrusted: ReasonProxyTLSUntrusted, name: ReasonProxyTLSUntrusted, expired: ReasonProxyTLSUntrusted,
		why: "--probe-ca lacks the authority, or another server answers at the proxy's address",
	})
}

// secure starts TLS with host on the current connection. Sessions are never resumed:
// resumption proves nothing about the certificate.
func (a *attempt) secure(host string, reasons certificateReasons) error {
	conn := tls.Client(a.conn, &tls.Config{
		ServerName: host,
		RootCAs:    a.prober.roots,
		MinVersion: tls.VersionTLS12,
		NextProtos: []string{"http/1.1"},
		// Without the ML-KEM hybrid, Go's default, which costs a quarter of the CPU
		// time of a probe: nothing in a probe is worth recording for decryption by a
		// future quantum computer.
		CurvePreferences: []tls.CurveID{tls.X25519, tls.CurveP256, tls.CurveP384, tls.CurveP521},
	})
	// Not HandshakeContext, which starts a goroutine: the connection's deadline
	// follows the context already.
	if err := conn.Handshake(); err != nil {
		return reasons.explain(err, host)
	}
	a.conn = conn
	return nil
}

// certificateReasons are the reasons for the faults of a certificate, of the target or
// of the proxy.
type certificateReasons struct {
	untrusted, name, expired Reason
	why                      string // possible causes of untrusted
}

// explain turns errors about the certificate into a reason and a text. The text has
// nothing from the certificate, which a proxy that intercepts TLS can forge.
func (c certificateReasons) explain(err error, host string) error {
	var cert *tls.CertificateVerificationError
	if !errors.As(err, &cert) {
		return err
	}
	var (
		invalid x509.CertificateInvalidError
		name    x509.HostnameError
		system  x509.SystemRootsError
	)
	switch {
	case errors.As(cert.Err, &system):
		return stageError{ReasonProberFault, "the prober has no root certificates; give it some by --probe-ca"}
	case errors.As(cert.Err, &name):
		return stageError{c.name, "the certificate is not for " + host}
	case errors.As(cert.Err, &invalid) && invalid.Reason == x509.Expired:
		return stageError{c.expired, "the certificate shown for " + host + validity(cert)}
	}
	return stageError{c.untrusted, "the certificate shown for " + host +
		" is not signed by an authority that the prober trusts: " + c.why}
}

func validity(cert *tls.CertificateVerificationError) string {
	now := time.Now()
	for _, c := range cert.UnverifiedCertificates {
		if now.After(c.NotAfter) {
			return " expired on " + c.NotAfter.UTC().Format(time.RFC3339)
		}
		if now.Before(c.NotBefore) {
			return " is not valid before " + c.NotBefore.UTC().Format(time.RFC3339)
		}
	}
	return " is out of its dates"
}

// LoadRoots returns the certificates in the PEM file at path as the only trusted
// roots, or the system's roots when path is empty. It fails when there are none, since
// every https probe would fail.
func LoadRoots(path string) (*x509.CertPool, error) {
	if path == "" {
		return systemRoots()
	}
	pem, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("read root certificates: %w", err)
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(pem) {
		return nil, fmt.Errorf("%s contains no PEM certificate", path)
	}
	return pool, nil
}

func systemRoots() (*x509.CertPool, error) {
	pool, err := x509.SystemCertPool()
	if err != nil {
		return nil, fmt.Errorf("load the system's root certificates: %w", err)
	}
	if pool.Equal(x509.NewCertPool()) {
		return nil, errors.New("this machine has no root certificates: install the package ca-certificates, or name a PEM file")
	}
	return pool, nil
}
