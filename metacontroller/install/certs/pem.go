package certs

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
)

const (
	pemCertificate = "CERTIFICATE"
	pemPrivateKey  = "PRIVATE KEY"
)

// ParseAuthorities reads the PEM certificates of certificate authorities. It
// refuses anything else, above all private keys: what it reads is about to be
// put into an object that many may read. No error repeats what was read.
func ParseAuthorities(data []byte) ([]*x509.Certificate, error) {
	certs, err := parseCerts(data)
	if err != nil {
		return nil, err
	}
	for _, cert := range certs {
		if !cert.IsCA {
			return nil, fmt.Errorf("certificate %q is not one of a certificate authority", cert.Subject)
		}
	}
	return certs, nil
}

// parseCerts reads at least one PEM certificate, and nothing else.
func parseCerts(data []byte) ([]*x509.Certificate, error) {
	var certs []*x509.Certificate
	for {
		var block *pem.Block
		if block, data = pem.Decode(data); block == nil {
			break
		}
		if block.Type != pemCertificate {
			return nil, fmt.Errorf("found a PEM block of type %q, want certificates alone", block.Type)
		}
		cert, err := x509.ParseCertificate(block.Bytes)
		if err != nil {
			return nil, fmt.Errorf("read certificate %d: %w", len(certs)+1, err)
		}
		certs = append(certs, cert)
	}
	switch {
	case len(bytes.TrimSpace(data)) > 0:
		return nil, errors.New("found text that is no PEM block")
	case len(certs) == 0:
		return nil, errors.New("found no PEM certificate")
	}
	return certs, nil
}

// parseKey reads one PEM private key as encodeKey writes it. No error repeats
// what was read.
func parseKey(data []byte) (*ecdsa.PrivateKey, error) {
	block, rest := pem.Decode(data)
	if block == nil || block.Type != pemPrivateKey || len(bytes.TrimSpace(rest)) > 0 {
		return nil, fmt.Errorf("want one PEM block of type %q", pemPrivateKey)
	}
	parsed, err := x509.ParsePKCS8PrivateKey(block.Bytes)
	if err != nil {
		return nil, errors.New("the private key does not decode") // the cause may quote it
	}
	key, ok := parsed.(*ecdsa.PrivateKey)
	if !ok {
		return nil, fmt.Errorf("the private key is a %T, want ECDSA", parsed)
	}
	return key, nil
}
