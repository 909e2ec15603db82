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

// reloadInterval is how often the file is read. Asking is cheap, and works for
// every way in which a file can be replaced; a mounted Secret is replaced by
// renaming a link two folders up, some of which file notifications miss.
const reloadInterval = 5 * time.Second

// singleName is the name of the token that comes without one.
const singleName = "default"

// Tokens knows who bears which token.
type Tokens struct {
	ring atomic.Pointer[keyring]
	// refused is true while the file's content was not taken.
	refused atomic.Bool

	path      string // "" for tokens that never change
	perSecond float64
	clock     clock.WithTicker
	log       *slog.Logger
	last      [sha256.Size]byte // of the file's content, or of the error of reading it
}

// Single returns Tokens that know one token, with all scopes. perSecond bounds
// its requests, 0 does not. The error says what is wrong with the token.
func Single(token string, perSecond float64) (*Tokens, error) {
	if err := CheckValue(token); err != nil {
		return nil, err
	}
	t := &Tokens{}
	ring := newKeyring([]Token{{Name: singleName, Value: token, Scopes: Scopes()}}, perSecond, keyring{})
	t.ring.Store(&ring)
	return t, nil
}

// FromFile reads the file at path, and again whenever it changes, while Run
// runs. perSecond bounds the requests of each token that has no rate of its
// own; 0 does not.
func FromFile(path string, perSecond float64, clk clock.WithTicker, log *slog.Logger) (*Tokens, error) {
	t := &Tokens{path: path, perSecond: perSecond, clock: clk, log: log}
	text, err := read(path)
	if err != nil {
		return nil, err
	}
	tokens, err := Parse(text)
	if err != nil {
		return nil, fmt.Errorf("tokens file %s: %w", path, err)
	}
	ring := newKeyring(tokens, perSecond, keyring{})
	t.ring.Store(&ring)
	t.last = sha256.Sum256(text)
	return t, nil
}

// read returns the file's content, but no more than Parse takes.
func read(path string) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("tokens file: %w", err)
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, maxFile+1))
	if err != nil {
		return nil, fmt.Errorf("tokens file: %w", err)
	}
	return text, nil
}

// Identify returns who bears the token in an Authorization header, nil when it
// is none that is known.
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

// Refused reports whether the file, as it is now, was not taken, so that the
// tokens that it had before are still in force.
func (t *Tokens) Refused() bool { return t.refused.Load() }

// Run keeps the tokens in step with the file until ctx ends, and returns nil.
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

// reload takes the file's content if it has changed, and is good. Of content
// that is not good, it is said once what is wrong.
func (t *Tokens) reload() {
	text, err := read(t.path)
	state := sha256.Sum256(text)
	if err != nil {
		state = sha256.Sum256([]byte(err.Error()))
	}
	if state == t.last {
		return
	}
	t.last = state
	var tokens []Token
	if err == nil {
		tokens, err = Parse(text)
	}
	if err != nil {
		t.refused.Store(true)
		t.log.Error("tokens file not taken, the tokens that it had before stay in force: mend the file", "file", t.path, "err", err)
		return
	}
	ring := newKeyring(tokens, t.perSecond, *t.ring.Load())
	t.ring.Store(&ring)
	t.refused.Store(false)
	t.log.Info("tokens file taken", "file", t.path, "tokens", t.Names())
}

// Collector tells whether the file is taken, for operators to be woken when it
// is not.
func (t *Tokens) Collector() prometheus.Collector {
	return prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "proxy_operator_tokens_file_refused",
		Help: "1 while the content of the tokens file is not taken and the tokens that it had before are in force, else 0.",
	}, func() float64 {
		if t.Refused() {
			return 1
		}
		return 0
	})
}
