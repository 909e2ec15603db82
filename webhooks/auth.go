package webhooks

import (
	"crypto/sha256"
	"crypto/subtle"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"strings"
)

// minTokenLength keeps placeholders and cut-off files from passing as tokens.
const minTokenLength = 16

// BearerTokens are the tokens that the hooks accept, read from a file, one a
// line. During a rotation the file holds the old and the new one.
type BearerTokens struct {
	file *reloaded[[][sha256.Size]byte]
}

// NewBearerTokens reads the file at path, and again whenever it changes.
func NewBearerTokens(path string, log *slog.Logger) (*BearerTokens, error) {
	file, err := newReloaded(log, func() ([][sha256.Size]byte, error) { return readTokens(path) }, path)
	if err != nil {
		return nil, fmt.Errorf("token file: %w", err)
	}
	return &BearerTokens{file: file}, nil
}

func readTokens(path string) ([][sha256.Size]byte, error) {
	b, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	var sums [][sha256.Size]byte
	for line := range strings.Lines(string(b)) {
		token := strings.TrimSpace(line)
		if token == "" {
			continue
		}
		if len(token) < minTokenLength {
			return nil, fmt.Errorf("%s: a token is shorter than %d characters; make one with: openssl rand -hex 32", path, minTokenLength)
		}
		sums = append(sums, sha256.Sum256([]byte(token)))
	}
	if len(sums) == 0 {
		return nil, fmt.Errorf("%s holds no token; make one with: openssl rand -hex 32", path)
	}
	return sums, nil
}

// Accepts reports whether the request carries one of the tokens. It takes the
// same time for all wrong ones: digests are compared, all of them, in constant
// time.
func (t *BearerTokens) Accepts(r *http.Request) bool {
	scheme, token, _ := strings.Cut(r.Header.Get("Authorization"), " ")
	if !strings.EqualFold(scheme, "Bearer") {
		return false
	}
	given := sha256.Sum256([]byte(strings.TrimSpace(token)))
	match := 0
	for _, want := range t.file.get() {
		match |= subtle.ConstantTimeCompare(given[:], want[:])
	}
	return match == 1
}

// TLSConfig serves the certificate in the two files, and the new one whenever
// they change.
func TLSConfig(certFile, keyFile string, log *slog.Logger) (*tls.Config, error) {
	pair, err := newReloaded(log, func() (*tls.Certificate, error) {
		c, err := tls.LoadX509KeyPair(certFile, keyFile)
		return &c, err
	}, certFile, keyFile)
	if err != nil {
		return nil, fmt.Errorf("TLS certificate %s and key %s: %w", certFile, keyFile, err)
	}
	return &tls.Config{
		MinVersion: tls.VersionTLS12,
		GetCertificate: func(*tls.ClientHelloInfo) (*tls.Certificate, error) {
			if c := pair.get(); c != nil {
				return c, nil
			}
			return nil, errors.New("no certificate")
		},
	}, nil
}
