package certs

import (
	"crypto/ecdsa"
	"crypto/rand"
	"crypto/sha256"
	"crypto/x509"
	"encoding/hex"
	"encoding/pem"
	"fmt"
	"slices"
)

// tokenIDLength is how many hex digits of the token's SHA-256 name it: enough to
// tell tokens apart, nothing to guess a random token of 256 bits by.
const tokenIDLength = 8

// material is everything that is secret or signed, decoded.
type material struct {
	// current authorities: one of ours, or those of --ca-file.
	current []*x509.Certificate
	// previous are those that current superseded, if they are still trusted.
	previous []*x509.Certificate
	// caKey is nil when somebody else's authority is used, and then so are
	// serverCert and serverKey.
	caKey      *ecdsa.PrivateKey
	serverCert *x509.Certificate
	serverKey  *ecdsa.PrivateKey
	token      string
	// previousToken is the one that token superseded, if webhooks shall still
	// accept it.
	previousToken string
}

// authority is the one that signs, when it is ours.
func (m *material) authority() *x509.Certificate { return m.current[0] }

// bundle is what Metacontroller trusts.
func (m *material) bundle() []*x509.Certificate { return slices.Concat(m.current, m.previous) }

// ours says whether we are the authority, and not cert-manager or such.
func (m *material) ours() bool { return m.caKey != nil }

// tokenID names a token without giving it away. It is part of the key that the
// CompositeController points at, because Metacontroller reads a token only when
// the CompositeController's spec changes, and out of a cache that may be late:
// under a key that never changed it could read the old token then, and keep it.
func tokenID(token string) string {
	sum := sha256.Sum256([]byte(token))
	return hex.EncodeToString(sum[:])[:tokenIDLength]
}

// newToken makes a token of 256 random bits, in characters that need no quoting
// anywhere.
func newToken() string { return rand.Text() + rand.Text() }

func encodeCerts(certs []*x509.Certificate) []byte {
	var out []byte
	for _, cert := range certs {
		out = append(out, pem.EncodeToMemory(&pem.Block{Type: pemCertificate, Bytes: cert.Raw})...)
	}
	return out
}

func encodeKey(key *ecdsa.PrivateKey) ([]byte, error) {
	der, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return nil, fmt.Errorf("encode a private key: %w", err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: pemPrivateKey, Bytes: der}), nil
}
