package certs

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"strings"
	"time"
)

// ErrInUse: the folder holds material that this action must not overwrite.
var ErrInUse = errors.New("refusing to overwrite")

// Ensure writes valid material for opts into the folder. It is idempotent: with Keep
// it writes only into an empty or missing folder, changes nothing in a valid one, and
// otherwise returns an error that wraps ErrInUse, with the defects and the remedy. A
// folder with foreign files is ErrForeign with every action. Errors and results
// contain no secrets.
func Ensure(opts Options, now time.Time) (Result, error) {
	if err := opts.Validate(); err != nil {
		return Result{}, err
	}
	for _, cert := range opts.CA {
		if now.After(cert.NotAfter) {
			return Result{}, fmt.Errorf("--ca-file: authority %q expired on %s", cert.Subject, cert.NotAfter.UTC().Format(time.DateOnly))
		}
	}
	old, err := load(opts.Dir)
	fresh := opts.Action == Keep || opts.Action == Replace
	switch {
	case err == nil:
		return update(opts, old, now)
	case errors.Is(err, ErrForeign):
		return Result{}, err
	case errors.Is(err, errAbsent) && !fresh:
		return Result{}, fmt.Errorf("nothing to renew in %s: %w; run without --renew", opts.Dir, err)
	case errors.Is(err, errAbsent), opts.Action == Replace:
		m := &material{current: opts.CA}
		return m.save(opts, nil, now)
	}
	return Result{}, fmt.Errorf("%w: %w; --force replaces everything in it", ErrInUse, err)
}

// update applies the action to a folder with valid files.
func update(opts Options, old *material, now time.Time) (Result, error) {
	if opts.Action == Keep {
		return keep(opts, old, now)
	}
	if err := old.mayRenew(opts, now); err != nil {
		return Result{}, fmt.Errorf("%w: %w", ErrInUse, err)
	}
	m := old.without(opts.Action)
	if len(opts.CA) > 0 {
		m.current = opts.CA
	}
	if sameCerts(m.current, m.previous) { // the same --ca-file again
		m.previous = old.previous
	}
	if opts.DropPrevious {
		m.previous, m.previousToken = nil, ""
	}
	return m.save(opts, old, now)
}

func keep(opts Options, old *material, now time.Time) (Result, error) {
	found, err := old.problems(opts, now)
	switch {
	case err != nil:
		return Result{}, err
	case len(found) > 0:
		return Result{}, fmt.Errorf("%w: %s is in use, and %s; use --renew %s, --renew %s or --renew %s, or --force for everything", ErrInUse, opts.Dir, strings.Join(found, "; "), RenewServer, RenewToken, RenewCA)
	case opts.DropPrevious && old.hasPrevious():
		m := *old
		m.previous, m.previousToken = nil, ""
		return m.save(opts, old, now)
	}
	return old.result(), nil
}

// mayRenew rejects an action that keeps an expired or a different authority.
func (m *material) mayRenew(opts Options, now time.Time) error {
	keepsCA := opts.Action == RenewServer || opts.Action == RenewToken
	switch {
	case !keepsCA:
		return nil
	case m.ours() && len(opts.CA) > 0, !m.ours() && !sameCerts(m.current, opts.CA):
		return fmt.Errorf("--renew %s keeps the authority, and --ca-file does not name the one in %s; replace it with --renew %s", opts.Action, opts.Dir, RenewCA)
	}
	if due := dueFor("its certificate", m.authority(), now); opts.Action == RenewServer && len(due) > 0 {
		return fmt.Errorf("the authority in %s cannot sign, %s; replace it with --renew %s", opts.Dir, due[0], RenewCA)
	}
	return nil
}

// without returns a copy of m without the parts that action renews, which become
// the previous ones.
func (m *material) without(action Action) *material {
	next := *m
	if action == RenewToken || action == Replace {
		next.token, next.previousToken = "", m.token
	}
	if action == RenewCA || action == Replace {
		next.current, next.previous, next.caKey = nil, m.current, nil
	}
	if action != RenewToken {
		next.serverCert, next.serverKey = nil, nil
	}
	return &next
}

// save issues the missing parts of m and writes the folder. old may be nil.
func (m *material) save(opts Options, old *material, now time.Time) (Result, error) {
	if err := m.issue(opts, now); err != nil {
		return Result{}, err
	}
	files, err := m.render(opts)
	if err != nil {
		return Result{}, err
	}
	if err := write(opts.Dir, files); err != nil {
		return Result{}, err
	}
	r := m.result()
	r.Written = true
	r.SpecChanges = old == nil || old.token != m.token || !sameCerts(old.bundle(), m.bundle())
	return r, nil
}

// Result of Ensure. It contains no secrets.
type Result struct {
	// Written is false if the folder was valid already.
	Written bool
	// SpecChanges: the CompositeController must be applied.
	SpecChanges bool
	// CAFingerprint is the SHA-256 of the authority's certificate, hex.
	CAFingerprint string
	// CAExpires is the end of that certificate.
	CAExpires time.Time
	// ServerNames of the server certificate; none with --ca-file.
	ServerNames []string
	// ServerExpires is the end of the server certificate, zero with --ca-file.
	ServerExpires time.Time
	// Previous: the previous authority or token is still trusted.
	Previous bool
	// TokenID identifies the token.
	TokenID string
}

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
