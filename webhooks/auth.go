package webhooks

import (
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"strings"

	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/internal/bearer"
)

// minTokenLength keeps placeholders and cut-off files from passing as tokens.
const minTokenLength = 16

// BearerTokens are the tokens that the hooks accept, read from a file, one a
// line. During a rotation the file holds the old and the new one.
type BearerTokens struct {
	file *reloaded[[]bearer.Token]
}

// NewBearerTokens reads the file at path, and again whenever it changes.
func NewBearerTokens(path string, log *slog.Logger) (*BearerTokens, error) {
	file, err := newReloaded(log, func() ([]bearer.Token, error) { return readTokens(path) }, path)
	if err != nil {
		return nil, fmt.Errorf("token file: %w", err)
	}
	return &BearerTokens{file: file}, nil
}

func readTokens(path string) ([]bearer.Token, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	return parseTokens(path, string(text))
}

func parseTokens(path, text string) ([]bearer.Token, error) {
	var tokens []bearer.Token
	for line := range strings.Lines(text) {
		token := strings.TrimSpace(line)
		if token == "" {
			continue
		}
		if len(token) < minTokenLength {
			return nil, fmt.Errorf("%s: a token is shorter than %d characters; make one with: openssl rand -hex 32", path, minTokenLength)
		}
		tokens = append(tokens, bearer.New(token))
	}
	if len(tokens) == 0 {
		return nil, fmt.Errorf("%s holds no token; make one with: openssl rand -hex 32", path)
	}
	return tokens, nil
}

// Accepts reports whether the request carries one of the tokens.
func (t *BearerTokens) Accepts(r *http.Request) bool {
	return bearer.Accepts(r.Header.Get("Authorization"), t.file.get()...)
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
