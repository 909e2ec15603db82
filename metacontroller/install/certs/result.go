package certs

import (
	"crypto/sha256"
	"encoding/hex"
	"time"
)

// Result says what a run did, in terms that may be shown to anybody.
type Result struct {
	// Written is false when everything was sound already.
	Written bool
	// SpecChanges says that the CompositeController has to be applied for the
	// new material to count.
	SpecChanges bool
	// CAFingerprint is the SHA-256 of the current authority's certificate, hex.
	CAFingerprint string
	// CAExpires is the end of that certificate.
	CAExpires time.Time
	// ServerNames are what the server certificate is valid for; none when
	// somebody else makes it.
	ServerNames []string
	// ServerExpires is the end of the server certificate, zero when somebody
	// else makes it.
	ServerExpires time.Time
	// Previous says that the authority or the token before this one still
	// counts.
	Previous bool
	// TokenID names the token without giving it away.
	TokenID string
}

func (m *material) hasPrevious() bool { return len(m.previous) > 0 || m.previousToken != "" }

func (m *material) result() Result {
	sum := sha256.Sum256(m.authority().Raw)
	r := Result{
		CAFingerprint: hex.EncodeToString(sum[:]),
		CAExpires:     m.authority().NotAfter,
		Previous:      m.hasPrevious(),
		TokenID:       tokenID(m.token),
	}
	if !m.ours() {
		return r
	}
	r.ServerExpires = m.serverCert.NotAfter
	r.ServerNames = append(r.ServerNames, m.serverCert.DNSNames...)
	for _, ip := range m.serverCert.IPAddresses {
		r.ServerNames = append(r.ServerNames, ip.String())
	}
	return r
}
