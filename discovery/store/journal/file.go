package journal

import (
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

// format of the file. A change that older programs would misread raises it.
const format = 1

const metaKey = "meta"

// lockTimeout is for how long a predecessor may take to let go of the file.
const lockTimeout = 2 * time.Second

// file is the bbolt file.
type file struct {
	path string
	db   *bolt.DB
	disk *os.File    // what bbolt works on
	info os.FileInfo // of disk, to know it by
	// broken: bbolt panicked, and may hold its locks for good.
	broken bool
}

// stored is what a file holds. Its deadlines are on the timeline of whoever wrote
// it.
type stored struct {
	ledger.State
	// alive is when it was last written to, zero for a new one.
	alive time.Time
}

// openFile opens the file and locks it. It never makes one.
func openFile(path string, noSync bool) (*file, error) {
	if err := refuseOther(path); err != nil {
		return nil, err
	}
	return initFile(path, noSync)
}

// initFile is openFile that takes an empty file for a new one.
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

// refuseOther refuses what is no file of ours at first sight, in plain words.
func refuseOther(path string) error {
	info, err := os.Stat(path)
	switch {
	case err != nil:
		return err
	case !info.Mode().IsRegular():
		return fmt.Errorf("%s is not a regular file; name a file in a writable folder", path)
	case info.Size() == 0:
		return damaged(path, errors.New("it is empty, as this program never leaves one"))
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

// damagedError says what to do about a file that cannot be trusted.
type damagedError struct {
	path  string
	cause error
}

func damaged(path string, cause error) error { return &damagedError{path, cause} }

// Error is for whoever has to choose.
func (e *damagedError) Error() string {
	return fmt.Sprintf("%s is damaged or no file of leases (%v); nothing was changed in it. "+
		"Move it away to start with none: leases and cooldowns in it are then forgotten, so wait until the longest lease has ended", e.path, e.cause)
}

// Unwrap returns the cause.
func (e *damagedError) Unwrap() error { return e.cause }

// whenBroken turns what bbolt does about pages that make no sense into an error:
// it panics, or follows them to places outside of the file, and may hold its locks
// then. Use it with defer, in the goroutine that touches the file.
func (f *file) whenBroken(err *error) {
	if p := recover(); p != nil {
		f.broken = true
		*err = damaged(f.path, fmt.Errorf("%v", p))
	}
}

// errGone: what is at the path is not what is written to.
var errGone = errors.New("it was removed or replaced while it was in use")

// there returns nil while the path leads to the file that is open. What is written
// to another one is nowhere to be found after a restart.
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
		return write(tx, entryID{bucketMeta, metaKey}, meta)
	})
}

// ordered lists the entries as they lie in the file.
func (b *batch) ordered() []entryID {
	ids := make([]entryID, 0, len(b.values))
	for id := range b.values {
		ids = append(ids, id)
	}
	slices.SortFunc(ids, func(a, b entryID) int {
		if a.bucket != b.bucket {
			return strings.Compare(a.bucket, b.bucket)
		}
		return strings.Compare(a.key, b.key)
	})
	return ids
}

func write(tx *bolt.Tx, id entryID, value any) error {
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

// close lets go of the file. bbolt waits for nothing here: there is one user.
func (f *file) close() (err error) {
	defer f.whenBroken(&err)
	if f.broken { // bbolt would wait for its own locks
		return f.abandon()
	}
	return f.db.Close()
}

// abandon lets go of a file that bbolt does not let go of. What is mapped to memory
// stays mapped, and would keep the lock.
func (f *file) abandon() error {
	if f.disk == nil {
		return nil
	}
	return errors.Join(syscall.Flock(int(f.disk.Fd()), syscall.LOCK_UN), f.disk.Close())
}
