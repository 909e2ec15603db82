package certs

import (
	"errors"
	"fmt"
	"strings"
	"time"
)

// ErrInUse: the folder holds material that may not be touched in this way.
var ErrInUse = errors.New("refusing to overwrite")

// Ensure makes the folder hold sound material for opts at the time now. Under
// Keep it writes only into an empty or missing folder, returns without a change
// when everything is sound, and else an error that wraps ErrInUse and lists what
// is wrong and what to do. A folder with other files in it is ErrForeign under
// every action. Nothing in an error or a Result is secret.
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
	return Result{}, fmt.Errorf("%w: %w; --force makes everything in it anew", ErrInUse, err)
}

// update decides what happens to a folder that could be read.
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
	if sameCerts(m.current, m.previous) { // the same one given again
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
		return Result{}, fmt.Errorf("%w: %s holds material in use, and %s; make what is meant anew with --renew %s, --renew %s or --renew %s, or everything with --force", ErrInUse, opts.Dir, strings.Join(found, "; "), RenewServer, RenewToken, RenewCA)
	case opts.DropPrevious && old.hasPrevious():
		m := *old
		m.previous, m.previousToken = nil, ""
		return m.save(opts, old, now)
	}
	return old.result(), nil
}

// mayRenew refuses to keep an authority that cannot do its work any more.
func (m *material) mayRenew(opts Options, now time.Time) error {
	keepsCA := opts.Action == RenewServer || opts.Action == RenewToken
	switch {
	case !keepsCA:
		return nil
	case m.ours() && len(opts.CA) > 0, !m.ours() && !sameCerts(m.current, opts.CA):
		return fmt.Errorf("--renew %s keeps the authority, and --ca-file does not name the one in %s; replace it with --renew %s", opts.Action, opts.Dir, RenewCA)
	}
	if due := dueFor("its certificate", m.authority(), now); opts.Action == RenewServer && len(due) > 0 {
		return fmt.Errorf("the authority in %s can sign no more, %s; replace it with --renew %s", opts.Dir, due[0], RenewCA)
	}
	return nil
}

// without returns a copy of m that lacks what action makes anew, and remembers
// what that supersedes.
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

// save completes m and writes it. old is what it takes the place of, or nil.
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
