package config

import (
	"crypto/tls"
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"slices"
	"strings"
	"sync"

	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/internal/bearer"
)

// reloaded is a value read from files, read again whenever one of them changes:
// mounted Secrets are rotated under a running process. While the new content is
// invalid the old value stays.
type reloaded[T any] struct {
	paths []string
	read  func() (T, error)
	log   *slog.Logger

	mu    sync.Mutex
	infos []os.FileInfo // one a path, as of the last read
	value T
}

// newReloaded reads the value for the first time.
func newReloaded[T any](log *slog.Logger, read func() (T, error), paths ...string) (*reloaded[T], error) {
	r := &reloaded[T]{paths: paths, read: read, log: log}
	var err error
	if r.infos, err = r.stat(); err != nil {
		return nil, err
	}
	if r.value, err = read(); err != nil {
		return nil, err
	}
	return r, nil
}

// get returns the current value. A file that is missing for a moment is being
// replaced.
func (r *reloaded[T]) get() T {
	r.mu.Lock()
	defer r.mu.Unlock()
	infos, err := r.stat()
	if err != nil || slices.EqualFunc(infos, r.infos, unchanged) {
		return r.value
	}
	r.infos = infos
	if value, err := r.read(); err != nil {
		r.log.Error("changed file is invalid, the old content stays in use", "files", r.paths, "err", err)
	} else {
		r.value = value
		r.log.Info("changed file loaded", "files", r.paths)
	}
	return r.value
}

func (r *reloaded[T]) stat() ([]os.FileInfo, error) {
	var out []os.FileInfo
	for _, path := range r.paths {
		info, err := os.Stat(path)
		if err != nil {
			return nil, err
		}
		out = append(out, info)
	}
	return out, nil
}

func unchanged(a, b os.FileInfo) bool {
	return os.SameFile(a, b) && a.Size() == b.Size() && a.ModTime().Equal(b.ModTime())
}

// minTokenLength refuses placeholders and truncated files.
const minTokenLength = 16

// BearerTokens are the tokens that the hooks accept, read from a file, one a
// line. During a rotation the file holds the old and the new one.
type BearerTokens struct {
	file *reloaded[[]bearer.Token]
}

// NewBearerTokens reads the file at path, and again whenever it changes.
func NewBearerTokens(path string, log *slog.Logger) (*BearerTokens, error) {
	file, err := newReloaded(log, func() ([]bearer.Token, error) {
		text, err := os.ReadFile(path)
		if err != nil {
			return nil, err
		}
		return parseTokens(path, string(text))
	}, path)
	if err != nil {
		return nil, fmt.Errorf("token file: %w", err)
	}
	return &BearerTokens{file: file}, nil
}

func parseTokens(path, text string) ([]bearer.Token, error) {
	var tokens []bearer.Token
	for line := range strings.Lines(text) {
		token := strings.TrimSpace(line)
		if token == "" {
			continue
		}
		if len(token) < minTokenLength {
			return nil, fmt.Errorf("%s: a token is shorter than %d characters; generate one with: openssl rand -hex 32", path, minTokenLength)
		}
		tokens = append(tokens, bearer.New(token))
	}
	if len(tokens) == 0 {
		return nil, fmt.Errorf("%s holds no token; generate one with: openssl rand -hex 32", path)
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
	pair, err := newReloaded(log, func() (tls.Certificate, error) { return tls.LoadX509KeyPair(certFile, keyFile) }, certFile, keyFile)
	if err != nil {
		return nil, fmt.Errorf("TLS certificate %s and key %s: %w", certFile, keyFile, err)
	}
	return &tls.Config{
		MinVersion: tls.VersionTLS12,
		GetCertificate: func(*tls.ClientHelloInfo) (*tls.Certificate, error) {
			c := pair.get()
			return &c, nil
		},
	}, nil
}
