package controlplane

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"time"
)

const (
	// certLifetime outlasts any local stack.
	certLifetime = 365 * 24 * time.Hour
	// certBackdate forgives a clock that is set back.
	certBackdate = time.Hour
)

// authority is a certificate authority that lives as long as one control plane:
// its key is never written to disk.
type authority struct {
	key     *ecdsa.PrivateKey
	cert    *x509.Certificate
	certPEM []byte
	now     time.Time
}

// keyPair is a certificate and its key, both PEM.
type keyPair struct {
	cert, key []byte
}

func newAuthority(now time.Time) (*authority, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, fmt.Errorf("make the certificate authority's key: %w", err)
	}
	a := &authority{key: key, now: now}
	template, err := a.template("local control plane")
	if err != nil {
		return nil, err
	}
	template.IsCA = true
	template.BasicConstraintsValid = true
	template.KeyUsage = x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature
	a.cert = template
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		return nil, fmt.Errorf("make the certificate authority: %w", err)
	}
	a.certPEM = pemBlock("CERTIFICATE", der)
	if a.cert, err = x509.ParseCertificate(der); err != nil {
		return nil, fmt.Errorf("read back the certificate authority: %w", err)
	}
	return a, nil
}

// issue makes a certificate for a server at ips and dns, which its owner can also
// show as a client.
func (a *authority) issue(name string, ips []net.IP, dns ...string) (keyPair, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return keyPair{}, fmt.Errorf("make the key of %s: %w", name, err)
	}
	template, err := a.template(name)
	if err != nil {
		return keyPair{}, err
	}
	template.KeyUsage = x509.KeyUsageDigitalSignature
	template.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth}
	template.IPAddresses = ips
	template.DNSNames = dns
	der, err := x509.CreateCertificate(rand.Reader, template, a.cert, key.Public(), a.key)
	if err != nil {
		return keyPair{}, fmt.Errorf("sign the certificate of %s: %w", name, err)
	}
	keyPEM, err := encodeKey(key)
	return keyPair{cert: pemBlock("CERTIFICATE", der), key: keyPEM}, err
}

func (a *authority) template(name string) (*x509.Certificate, error) {
	serial, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 127))
	if err != nil {
		return nil, fmt.Errorf("make the serial number of %s: %w", name, err)
	}
	return &x509.Certificate{
		SerialNumber: serial,
		Subject:      pkix.Name{CommonName: name},
		NotBefore:    a.now.Add(-certBackdate),
		NotAfter:     a.now.Add(certLifetime),
	}, nil
}

// newSigningKey makes the key that signs service account tokens, PEM.
func newSigningKey() ([]byte, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, fmt.Errorf("make the service account key: %w", err)
	}
	return encodeKey(key)
}

// newToken makes a bearer token of 256 random bits.
func newToken() string { return rand.Text() + rand.Text() }

// encodeKey writes SEC 1, the one form that kube-apiserver also reads the public
// half of a service account key from.
func encodeKey(key *ecdsa.PrivateKey) ([]byte, error) {
	der, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		return nil, fmt.Errorf("encode a private key: %w", err)
	}
	return pemBlock("EC PRIVATE KEY", der), nil
}

func pemBlock(kind string, der []byte) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der})
}
