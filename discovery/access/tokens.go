// Package access authenticates clients by named bearer tokens with scopes and a rate
// limit each, from a file that is reloaded when it changes.
package access

import (
	"context"
	"crypto/sha256"
	"fmt"
	"io"
	"log/slog"
	"os"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/utils/clock"
)

// reloadInterval is how often the file is read. Polling works for every way of
// replacing a file; a mounted Secret is replaced by renaming a symlink two folders
// up, which file notifications can miss.
const reloadInterval = 5 * time.Second

// singleName is the name of the token of Single.
const singleName = "default"

// Tokens maps tokens to their holders.
type Tokens struct {
	ring    atomic.Pointer[keyring]
	refused atomic.Bool // the file is invalid, and the last valid tokens are in force

	path      string // "" for tokens that never change
	perSecond float64
	clock     clock.WithTicker
	log       *slog.Logger
	last      [sha256.Size]byte // of the file's content, or of the error of reading it
}

// Single returns Tokens with one token, which has all scopes. perSecond is its rate
// limit, 0 for none. The error is about the token.
func Single(token string, perSecond float64) (*Tokens, error) {
	if err := CheckValue(token); err != nil {
		return nil, err
	}
	t := &Tokens{}
	ring := newKeyring([]Token{{Name: singleName, Value: token, Scopes: Scopes()}}, perSecond, keyring{})
	t.ring.Store(&ring)
	return t, nil
}

// FromFile reads the file at path; Run reloads it. perSecond is the rate limit of
// tokens without one of their own, 0 for none.
func FromFile(path string, perSecond float64, clk clock.WithTicker, log *slog.Logger) (*Tokens, error) {
	t := &Tokens{path: path, perSecond: perSecond, clock: clk, log: log}
	t.ring.Store(&keyring{})
	_, err := t.load()
	return t, err
}

// load reads the file and stores its tokens, if its content has changed.
func (t *Tokens) load() (changed bool, err error) {
	text, err := t.read()
	state := sha256.Sum256(text)
	if err != nil {
		state = sha256.Sum256([]byte(err.Error()))
	}
	if state == t.last {
		return false, nil
	}
	t.last = state
	if err != nil {
		return true, fmt.Errorf("tokens file: %w", err)
	}
	tokens, err := Parse(text)
	if err != nil {
		return true, fmt.Errorf("tokens file %s: %w", t.path, err)
	}
	ring := newKeyring(tokens, t.perSecond, *t.ring.Load())
	t.ring.Store(&ring)
	return true, nil
}

// read returns the file's content, at most one byte more than Parse accepts.
func (t *Tokens) read() ([]byte, error) {
	f, err := os.Open(t.path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return io.ReadAll(io.LimitReader(f, maxFile+1))
}

// Identify returns the holder of the token in an Authorization header, nil for an
// unknown token.
func (t *Tokens) Identify(header string) *Holder { return t.ring.Load().identify(header) }

// Names lists the names of all tokens, in the order of the file.
func (t *Tokens) Names() (names []string) {
	for _, h := range t.ring.Load().holders {
		if len(names) == 0 || names[len(names)-1] != h.Name {
			names = append(names, h.Name)
		}
	}
	return names
}

// Refused reports whether the current file is invalid, so that the last valid tokens
// are in force.
func (t *Tokens) Refused() bool { return t.refused.Load() }

// Run reloads the file until ctx ends, and returns nil.
func (t *Tokens) Run(ctx context.Context) error {
	if t.path == "" {
		<-ctx.Done()
		return nil
	}
	ticker := t.clock.NewTicker(reloadInterval)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C():
			t.reload()
		}
	}
}

// reload logs each new content once.
func (t *Tokens) reload() {
	changed, err := t.load()
	switch {
	case !changed:
	case err != nil:
		t.refused.Store(true)
		t.log.Error("tokens file refused, the last valid tokens stay in force: fix the file", "file", t.path, "err", err)
	default:
		t.refused.Store(false)
		t.log.Info("tokens file loaded", "file", t.path, "tokens", t.Names())
	}
}

// Collector returns the metric of Refused.
func (t *Tokens) Collector() prometheus.Collector {
	return prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "proxy_operator_tokens_file_refused",
		Help: "1 while the tokens file is invalid and the last valid tokens are in force, else 0.",
	}, func() float64 {
		if t.Refused() {
			return 1
		}
		return 0
	})
}
