package journal

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"runtime/debug"
	"slices"
	"strings"
	"syscall"
	"time"

	bolt "go.etcd.io/bbolt"
	bolterrors "go.etcd.io/bbolt/errors"

	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/discovery/store/ledger"
)

// Buckets of the file.
const (
	bucketMeta      = "meta"
	bucketLeases    = "leases"
	bucketCooldowns = "cooldowns"
	bucketSessions  = "sessions"
)

// format of the file. Raise it with each incompatible change.
const format = 1

const metaKey = "meta"

// lockTimeout is how long to wait for another process to close the file.
const lockTimeout = 2 * time.Second

// file is the bbolt file.
type file struct {
	path string
	db   *bolt.DB
	disk *os.File    // that bbolt uses
	info os.FileInfo // identity of disk
	// broken: bbolt panicked and may hold its locks forever.
	broken bool
}

// stored is the contents of a file. Its deadlines are on the timeline of the process
// that wrote it.
type stored struct {
	ledger.State
	// alive is the time of the last commit, zero for a new file.
	alive time.Time
}

// openFile opens and locks an existing file.
func openFile(path string, noSync bool) (*file, error) {
	if err := refuseOther(path); err != nil {
		return nil, err
	}
	return initFile(path, noSync)
}

// initFile is openFile that accepts an empty file as a new one.
func initFile(path string, noSync bool) (*file, error) {
	f := &file{path: path}
	err := f.open(noSync)
	if f.broken {
		_ = f.abandon()
	}
	if err != nil {
		return nil, explainOpen(path, err)
	}
	return f, nil
}

func (f *file) open(noSync bool) (err error) {
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	defer f.whenBroken(&err)
	noting := func(name string, flag int, perm os.FileMode) (disk *os.File, err error) {
		if f.disk, err = os.OpenFile(name, flag&^os.O_CREATE, perm); err == nil {
			f.info, err = f.disk.Stat()
		}
		return f.disk, err
	}
	f.db, err = bolt.Open(f.path, 0o600, &bolt.Options{Timeout: lockTimeout, FreelistType: bolt.FreelistMapType, NoSync: noSync, OpenFile: noting})
	return err
}

// refuseOther refuses what is obviously not a lease file, with a clear error.
func refuseOther(path string) error {
	info, err := os.Stat(path)
	switch {
	case err != nil:
		return err
	case !info.Mode().IsRegular():
		return fmt.Errorf("%s is not a regular file; name a file in a writable folder", path)
	case info.Size() == 0:
		return damaged(path, errors.New("it is empty, which this program never leaves behind"))
	}
	return nil
}

func explainOpen(path string, err error) error {
	switch {
	case errors.Is(err, bolterrors.ErrTimeout):
		return fmt.Errorf("%s is in use by another process; only one may have it, so run one replica", path)
	case errors.Is(err, bolterrors.ErrInvalid), errors.Is(err, bolterrors.ErrVersionMismatch), errors.Is(err, bolterrors.ErrChecksum),
		strings.Contains(err.Error(), "file size too small"):
		return damaged(path, err)
	}
	return err
}

// damagedError explains what to do about a damaged file.
type damagedError struct {
	path  string
	cause error
}

func damaged(path string, cause error) error { return &damagedError{path, cause} }

// Error explains the choice.
func (e *damagedError) Error() string {
	return fmt.Sprintf("%s is damaged or not a lease file (%v); it was not changed. "+
		"Move it away to start without leases: its leases and cooldowns are then lost, so wait first until the longest lease has expired", e.path, e.cause)
}

// Unwrap returns the cause.
func (e *damagedError) Unwrap() error { return e.cause }

// whenBroken converts a panic of bbolt on corrupt pages, or a fault from a read outside
// of the file, into an error. bbolt may hold its locks then. Defer it in the goroutine
// that uses the file.
func (f *file) whenBroken(err *error) {
	if p := recover(); p != nil {
		f.broken = true
		*err = damaged(f.path, fmt.Errorf("%v", p))
	}
}

// errGone: another file, or none, is at the path.
var errGone = errors.New("it was removed or replaced while it was in use")

// there returns nil while the open file is at the path. Otherwise commits would be lost
// at a restart.
func (f *file) there() error {
	info, err := os.Stat(f.path)
	switch {
	case errors.Is(err, fs.ErrNotExist), err == nil && !os.SameFile(info, f.info):
		return fmt.Errorf("%s: %w", f.path, errGone)
	}
	return err
}

// commit makes changes durable, all or none.
func (f *file) commit(b *batch, meta storedMeta) (err error) {
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	defer f.whenBroken(&err)
	if err := f.there(); err != nil {
		return err
	}
	meta.Format = format
	return f.db.Update(func(tx *bolt.Tx) error {
		for _, name := range []string{bucketMeta, bucketLeases, bucketCooldowns, bucketSessions} {
			if _, err := tx.CreateBucketIfNotExists([]byte(name)); err != nil {
				return err
			}
		}
		for _, id := range b.ordered() {
			if err := write(tx, id, b.values[id]); err != nil {
				return err
			}
		}
		return write(tx, rowKey{bucketMeta, metaKey}, meta)
	})
}

// ordered lists the rows in the order of the file.
func (b *batch) ordered() []rowKey {
	ids := make([]rowKey, 0, len(b.values))
	for id := range b.values {
		ids = append(ids, id)
	}
	slices.SortFunc(ids, func(a, b rowKey) int {
		return cmp.Or(cmp.Compare(a.bucket, b.bucket), cmp.Compare(a.key, b.key))
	})
	return ids
}

func write(tx *bolt.Tx, id rowKey, value any) error {
	b := tx.Bucket([]byte(id.bucket))
	if value == nil {
		return b.Delete([]byte(id.key))
	}
	raw, err := encode(value)
	if err != nil {
		return err
	}
	return b.Put([]byte(id.key), raw)
}

// close closes the file.
func (f *file) close() (err error) {
	defer f.whenBroken(&err)
	if f.broken { // bbolt would wait for its own locks
		return f.abandon()
	}
	return f.db.Close()
}

// abandon unlocks and closes a file without bbolt, which keeps it mapped to memory.
func (f *file) abandon() error {
	if f.disk == nil {
		return nil
	}
	return errors.Join(syscall.Flock(int(f.disk.Fd()), syscall.LOCK_UN), f.disk.Close())
}
