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

	"k8s.io/client-go/util/cert"
	"k8s.io/client-go/util/keyutil"
)

const (
	certLifetime = 365 * 24 * time.Hour // outlasts any local stack
	certBackdate = time.Hour            // forgives a clock that is set back
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
		return nil, fmt.Errorf("create the key of the certificate authority: %w", err)
	}
	ca, err := cert.NewSelfSignedCACert(cert.Config{CommonName: "local control plane", NotBefore: now.Add(-certBackdate)}, key)
	if err != nil {
		return nil, fmt.Errorf("create the certificate authority: %w", err)
	}
	return &authority{key: key, cert: ca, certPEM: pemBlock(cert.CertificateBlockType, ca.Raw), now: now}, nil
}

// issue creates a certificate for a server at ips and dns, which is also a client certificate.
func (a *authority) issue(name string, ips []net.IP, dns ...string) (keyPair, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return keyPair{}, fmt.Errorf("create the key of %s: %w", name, err)
	}
	serial, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 127))
	if err != nil {
		return keyPair{}, fmt.Errorf("create the serial number of %s: %w", name, err)
	}
	template := &x509.Certificate{
		SerialNumber: serial,
		Subject:      pkix.Name{CommonName: name},
		NotBefore:    a.now.Add(-certBackdate),
		NotAfter:     a.now.Add(certLifetime),
		KeyUsage:     x509.KeyUsageDigitalSignature,
		ExtKeyUsage:  []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
		IPAddresses:  ips,
		DNSNames:     dns,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, a.cert, key.Public(), a.key)
	if err != nil {
		return keyPair{}, fmt.Errorf("sign the certificate of %s: %w", name, err)
	}
	keyPEM, err := keyutil.MarshalPrivateKeyToPEM(key)
	return keyPair{cert: pemBlock(cert.CertificateBlockType, der), key: keyPEM}, err
}

// newSigningKey creates the key that signs service account tokens, as SEC 1 PEM: the one form from
// which kube-apiserver also reads the public half.
func newSigningKey() ([]byte, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, fmt.Errorf("create the service account key: %w", err)
	}
	return keyutil.MarshalPrivateKeyToPEM(key)
}

// newToken creates a bearer token of 256 random bits.
func newToken() string { return rand.Text() + rand.Text() }

func pemBlock(kind string, der []byte) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der})
}
