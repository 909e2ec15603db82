package webhooks

import (
	"log/slog"
	"os"
	"slices"
	"sync"
)

// reloaded is a value read from files, read again whenever one of them changes:
// mounted Secrets are rotated under a running process. When the new content is
// unusable the old value stays.
type reloaded[T any] struct {
	paths []string
	read  func() (T, error)
	log   *slog.Logger

	mu    sync.Mutex
	looks []os.FileInfo // one a path, as of the last read
	value T
}

// sameFile reports whether nothing happened to a file between two looks at it.
func sameFile(a, b os.FileInfo) bool {
	return os.SameFile(a, b) && a.Size() == b.Size() && a.ModTime().Equal(b.ModTime())
}

// newReloaded reads the value for the first time.
func newReloaded[T any](log *slog.Logger, read func() (T, error), paths ...string) (*reloaded[T], error) {
	r := &reloaded[T]{paths: paths, read: read, log: log}
	looks, err := r.look()
	if err != nil {
		return nil, err
	}
	if r.value, err = read(); err != nil {
		return nil, err
	}
	r.looks = looks
	return r, nil
}

// get returns the current value.
func (r *reloaded[T]) get() T {
	r.mu.Lock()
	defer r.mu.Unlock()
	looks, err := r.look()
	if err != nil || slices.EqualFunc(looks, r.looks, sameFile) {
		return r.value // a file that is gone for a moment is being replaced
	}
	r.looks = looks
	value, err := r.read()
	if err != nil {
		r.log.Error("changed file is unusable, the old content stays in use", "files", r.paths, "err", err)
		return r.value
	}
	r.value = value
	r.log.Info("changed file loaded", "files", r.paths)
	return r.value
}

func (r *reloaded[T]) look() ([]os.FileInfo, error) {
	out := make([]os.FileInfo, len(r.paths))
	for i, path := range r.paths {
		info, err := os.Stat(path)
		if err != nil {
			return nil, err
		}
		out[i] = info
	}
	return out, nil
}
