package certs

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/rand"
	"crypto/sha256"
	"crypto/x509"
	"encoding/hex"
	"encoding/pem"
	"errors"
	"fmt"
	"slices"

	"k8s.io/client-go/util/cert"
)

const pemPrivateKey = "PRIVATE KEY"

// material is the decoded content of a folder.
type material struct {
	// current authorities: ours, or those of --ca-file.
	current []*x509.Certificate
	// previous authorities that are still trusted.
	previous []*x509.Certificate
	// caKey, serverCert and serverKey are nil with --ca-file.
	caKey      *ecdsa.PrivateKey
	serverCert *x509.Certificate
	serverKey  *ecdsa.PrivateKey
	token      string
	// previousToken is still accepted by webhooks, unless it is empty.
	previousToken string
}

// authority is the current authority, and signs if it is ours.
func (m *material) authority() *x509.Certificate { return m.current[0] }

// bundle are the authorities that Metacontroller trusts.
func (m *material) bundle() []*x509.Certificate { return slices.Concat(m.current, m.previous) }

// ours reports whether the authority is in the folder, with its key.
func (m *material) ours() bool { return m.caKey != nil }

func (m *material) hasPrevious() bool { return len(m.previous) > 0 || m.previousToken != "" }

// tokenID identifies a token: 8 hex digits of its SHA-256, too few to guess 256
// random bits. It is a part of the token's key in the Secret, because Metacontroller
// reads a token only when the CompositeController's spec changes, and from a cache
// that may be stale: under a constant key it could keep the old token.
func tokenID(token string) string {
	sum := sha256.Sum256([]byte(token))
	return hex.EncodeToString(sum[:4])
}

// newToken returns 256 random bits as letters and digits.
func newToken() string { return rand.Text() + rand.Text() }

func encodeKey(key *ecdsa.PrivateKey) ([]byte, error) {
	der, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return nil, fmt.Errorf("encode a private key: %w", err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: pemPrivateKey, Bytes: der}), nil
}

// ParseAuthorities parses the PEM certificates of certificate authorities and
// rejects everything else, such as private keys: the result is stored in an object
// with many readers. Errors do not contain the input.
func ParseAuthorities(data []byte) ([]*x509.Certificate, error) {
	certs, err := parseCerts(data)
	if err != nil {
		return nil, err
	}
	for _, c := range certs {
		if !c.IsCA {
			return nil, fmt.Errorf("certificate %q is not one of a certificate authority", c.Subject)
		}
	}
	return certs, nil
}

// parseCerts parses at least one PEM certificate and rejects everything else,
// which cert.ParseCertsPEM skips.
func parseCerts(data []byte) ([]*x509.Certificate, error) {
	var certs []*x509.Certificate
	for {
		var block *pem.Block
		if block, data = pem.Decode(data); block == nil {
			break
		}
		if block.Type != cert.CertificateBlockType {
			return nil, fmt.Errorf("found a PEM block of type %q, want only certificates", block.Type)
		}
		parsed, err := x509.ParseCertificate(block.Bytes)
		if err != nil {
			return nil, fmt.Errorf("parse certificate %d: %w", len(certs)+1, err)
		}
		certs = append(certs, parsed)
	}
	switch {
	case len(bytes.TrimSpace(data)) > 0:
		return nil, errors.New("found text that is no PEM block")
	case len(certs) == 0:
		return nil, errors.New("found no PEM certificate")
	}
	return certs, nil
}

// parseKey parses the output of encodeKey. Errors do not contain the input.
func parseKey(data []byte) (*ecdsa.PrivateKey, error) {
	block, rest := pem.Decode(data)
	if block == nil || block.Type != pemPrivateKey || len(bytes.TrimSpace(rest)) > 0 {
		return nil, fmt.Errorf("want one PEM block of type %q", pemPrivateKey)
	}
	parsed, err := x509.ParsePKCS8PrivateKey(block.Bytes)
	key, ok := parsed.(*ecdsa.PrivateKey)
	if err != nil || !ok { // err may contain key bytes
		return nil, errors.New("the private key is not an ECDSA key in PKCS #8")
	}
	return key, nil
}
