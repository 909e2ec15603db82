package certs

import (
	"bytes"
	"crypto/x509"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// problems returns the defects of the folder of m, for the error message. An error
// is one of reading.
func (m *material) problems(opts Options, now time.Time) ([]string, error) {
	if found := m.unsound(opts, now); len(found) > 0 {
		return found, nil
	}
	files, err := m.render(opts)
	if err != nil {
		return nil, err
	}
	var differing []string
	for name, want := range files {
		got, err := os.ReadFile(filepath.Join(opts.Dir, name))
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return nil, fmt.Errorf("read %s: %w", name, err)
		}
		if !bytes.Equal(got, want) {
			differing = append(differing, name)
		}
	}
	if len(differing) == 0 {
		return nil, nil
	}
	slices.Sort(differing)
	return []string{strings.Join(differing, ", ") + ": not what this run writes; were they edited, or written with other flags?"}, nil
}

// unsound returns the defects of m itself.
func (m *material) unsound(opts Options, now time.Time) []string {
	found := dueFor("the authority's certificate", m.authority(), now)
	if m.ours() != (len(opts.CA) == 0) {
		with := map[bool]string{true: "without --ca-file", false: "with --ca-file"}
		return append(found, "it was made "+with[m.ours()]+", and this run is "+with[len(opts.CA) == 0])
	}
	if !m.ours() {
		if !sameCerts(opts.CA, m.current) {
			found = append(found, "--ca-file holds another authority than it")
		}
		return found
	}
	if !m.caKey.PublicKey.Equal(m.authority().PublicKey) {
		found = append(found, "ca.key is not the key of the first certificate in ca.crt")
	}
	return append(found, m.serverProblems(opts, now)...)
}

func (m *material) serverProblems(opts Options, now time.Time) []string {
	found := dueFor("the server certificate", m.serverCert, now)
	if !m.serverKey.PublicKey.Equal(m.serverCert.PublicKey) {
		found = append(found, "the server's key does not fit its certificate")
	}
	roots := x509.NewCertPool()
	roots.AddCert(m.authority())
	// Expiry is checked above.
	if _, err := m.serverCert.Verify(x509.VerifyOptions{Roots: roots, CurrentTime: m.serverCert.NotBefore}); err != nil {
		found = append(found, "the server certificate is not the authority's: "+err.Error())
	}
	var missing []string
	for _, name := range opts.Names() {
		if m.serverCert.VerifyHostname(name) != nil {
			missing = append(missing, name)
		}
	}
	if len(missing) > 0 {
		found = append(found, "the server certificate is not valid for "+strings.Join(missing, ", "))
	}
	return found
}

// dueFor reports a certificate that is expired or due for renewal.
func dueFor(what string, cert *x509.Certificate, now time.Time) []string {
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
