package certs

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"fmt"
	"math/big"
	"net"
	"time"
)

// backdate tolerates a clock that is behind.
const backdate = time.Hour

// serialBits are the random bits of a serial number, at most 159 by RFC 5280
// 4.1.2.2.
const serialBits = 127

// issue creates the missing parts of m. With --ca-file it creates no certificates.
func (m *material) issue(opts Options, now time.Time) error {
	if m.token == "" {
		m.token = newToken()
	}
	if len(opts.CA) > 0 {
		return nil
	}
	if m.caKey == nil {
		if err := m.newAuthority(opts, now); err != nil {
			return err
		}
	}
	if m.serverCert == nil {
		return m.newServer(opts, now)
	}
	return nil
}

// newAuthority creates an authority that can only sign server certificates.
func (m *material) newAuthority(opts Options, now time.Time) error {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return fmt.Errorf("create the authority's key: %w", err)
	}
	// The date distinguishes the authorities of a bundle.
	name := fmt.Sprintf("%s/%s CA %s", opts.Namespace, opts.Service, now.UTC().Format(time.DateOnly))
	template, err := newTemplate(name, now, opts.CAValidity)
	if err != nil {
		return err
	}
	template.IsCA = true
	template.BasicConstraintsValid = true
	template.MaxPathLenZero = true
	template.KeyUsage = x509.KeyUsageCertSign
	cert, err := sign(template, template, key, key)
	if err != nil {
		return fmt.Errorf("create the authority: %w", err)
	}
	m.caKey = key
	m.current = []*x509.Certificate{cert}
	return nil
}

// newServer creates the server's key and certificate, which expires with the authority
// at the latest.
func (m *material) newServer(opts Options, now time.Time) error {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return fmt.Errorf("create the server's key: %w", err)
	}
	template, err := newTemplate(opts.Host(), now, opts.ServerValidity)
	if err != nil {
		return err
	}
	if end := m.authority().NotAfter; template.NotAfter.After(end) {
		template.NotAfter = end
	}
	template.KeyUsage = x509.KeyUsageDigitalSignature
	template.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}
	for _, name := range opts.Names() {
		if ip := net.ParseIP(name); ip != nil {
			template.IPAddresses = append(template.IPAddresses, ip)
		} else {
			template.DNSNames = append(template.DNSNames, name)
		}
	}
	cert, err := sign(template, m.authority(), key, m.caKey)
	if err != nil {
		return fmt.Errorf("create the server certificate: %w", err)
	}
	m.serverKey, m.serverCert = key, cert
	return nil
}

func newTemplate(name string, now time.Time, validity time.Duration) (*x509.Certificate, error) {
	serial, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), serialBits))
	if err != nil {
		return nil, fmt.Errorf("create a serial number: %w", err)
	}
	return &x509.Certificate{
		SerialNumber: serial,
		Subject:      pkix.Name{CommonName: name},
		NotBefore:    now.Add(-backdate),
		NotAfter:     now.Add(validity),
	}, nil
}

func sign(template, parent *x509.Certificate, key, parentKey *ecdsa.PrivateKey) (*x509.Certificate, error) {
	der, err := x509.CreateCertificate(rand.Reader, template, parent, key.Public(), parentKey)
	if err != nil {
		return nil, err
	}
	return x509.ParseCertificate(der)
}
