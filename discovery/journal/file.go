package journal

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime/debug"
	"slices"
	"strings"
	"time"

	bolt "go.etcd.io/bbolt"
	bolterrors "go.etcd.io/bbolt/errors"

	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/discovery/lease"
	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/discovery/ledger"
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

// openFunc opens a file for bbolt. Tests put failing files there.
type openFunc func(name string, flag int, perm os.FileMode) (*os.File, error)

// file is the bbolt file.
type file struct {
	path string
	db   *bolt.DB
	disk *os.File // what bbolt works on
	// broken: bbolt panicked, and may hold its locks for good.
	broken bool
}

// stored is what a file holds.
type stored struct {
	ledger.State
	// alive is when it was last written to.
	alive time.Time
}

// openFile opens the file, or makes an empty one, and locks it.
func openFile(path string, noSync bool, open openFunc) (f *file, err error) {
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	defer whenDamaged(path, &err)
	if err := refuseOther(path); err != nil {
		return nil, err
	}
	if open == nil {
		open = os.OpenFile
	}
	f = &file{path: path}
	noting := func(name string, flag int, perm os.FileMode) (disk *os.File, err error) {
		f.disk, err = open(name, flag, perm)
		return f.disk, err
	}
	db, err := bolt.Open(path, 0o600, &bolt.Options{Timeout: lockTimeout, FreelistType: bolt.FreelistMapType, NoSync: noSync, OpenFile: noting})
	if err != nil {
		return nil, explainOpen(path, err)
	}
	f.db = db
	return f, nil
}

// refuseOther refuses what is no file, such as a folder, in plain words.
func refuseOther(path string) error {
	info, err := os.Stat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil
	case err != nil:
		return err
	case !info.Mode().IsRegular():
		return fmt.Errorf("%s is not a regular file; name a file in a writable folder", path)
	}
	return nil
}

func explainOpen(path string, err error) error {
	switch {
	case errors.Is(err, bolterrors.ErrTimeout):
		return fmt.Errorf("%s is in use by another process; only one may have it, so run one replica", path)
	case errors.Is(err, fs.ErrNotExist):
		return fmt.Errorf("%w; make the folder %s", err, filepath.Dir(path))
	case errors.Is(err, bolterrors.ErrInvalid), errors.Is(err, bolterrors.ErrVersionMismatch), errors.Is(err, bolterrors.ErrChecksum),
		strings.Contains(err.Error(), "file size too small"):
		return damaged(path, err)
	}
	return err
}

// damaged says what to do about a file that cannot be trusted.
func damaged(path string, cause error) error {
	return fmt.Errorf("%s is damaged or no file of leases (%w); nothing was changed in it. "+
		"Move it away to start with none: leases and cooldowns in it are then forgotten, so wait until the longest lease has ended", path, cause)
}

// whenDamaged turns what bbolt does about pages that make no sense into an
// error: it panics, or follows them to places outside of the file. Use it with
// defer, in the goroutine that touches the file.
func whenDamaged(path string, err *error) {
	if p := recover(); p != nil {
		*err = damaged(path, fmt.Errorf("%v", p))
	}
}

// whenBroken is whenDamaged for what happens while bbolt holds its locks.
func (f *file) whenBroken(err *error) {
	if p := recover(); p != nil {
		f.broken = true
		*err = damaged(f.path, fmt.Errorf("%v", p))
	}
}

// load reads everything and checks it. An empty file gets its buckets at the
// first commit.
func (f *file) load() (s stored, err error) {
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	defer f.whenBroken(&err)
	err = f.db.View(func(tx *bolt.Tx) error {
		if err := f.checkSize(tx); err != nil {
			return err
		}
		meta, err := readMeta(tx)
		if err != nil || meta == nil {
			return err
		}
		s.alive, s.Fence = at(meta.Alive), meta.Fence
		return readState(tx, &s.State)
	})
	if err != nil && !errors.Is(err, errNewer) {
		return stored{}, damaged(f.path, err)
	}
	return s, err
}

// checkSize finds out whether the file was cut.
func (f *file) checkSize(tx *bolt.Tx) error {
	info, err := os.Stat(f.path)
	if err != nil {
		return err
	}
	if info.Size() < tx.Size() {
		return fmt.Errorf("it has %d bytes of %d", info.Size(), tx.Size())
	}
	return nil
}

// errNewer: a later version of this program wrote the file.
var errNewer = errors.New("written by a newer version")

// readMeta returns nil for a file that holds nothing at all.
func readMeta(tx *bolt.Tx) (*storedMeta, error) {
	b := tx.Bucket([]byte(bucketMeta))
	if b == nil {
		if name, _ := tx.Cursor().First(); name != nil {
			return nil, fmt.Errorf("it holds %q and no %q", name, bucketMeta)
		}
		return nil, nil
	}
	meta := &storedMeta{}
	if err := decode(b.Get([]byte(metaKey)), meta); err != nil {
		return nil, fmt.Errorf("%s: %w", bucketMeta, err)
	}
	if meta.Format > format {
		return nil, fmt.Errorf("%s has format %d and this version knows %d: %w; use the version that wrote it", tx.DB().Path(), meta.Format, format, errNewer)
	}
	return meta, nil
}

func readState(tx *bolt.Tx, s *ledger.State) error {
	return errors.Join(
		readBucket(tx, bucketLeases, func(v storedLease) string {
			s.Leases = append(s.Leases, v.record())
			return leaseKey(v.Fence)
		}),
		readBucket(tx, bucketCooldowns, func(v storedCooldown) string {
			s.Cooldowns = append(s.Cooldowns, ledger.Cooldown{ProxyUID: v.UID, Target: v.Target, Until: at(v.Until)})
			return key(v.UID, v.Target)
		}),
		readBucket(tx, bucketSessions, func(v storedSession) string {
			instance := lease.Instance{ProxyUID: v.UID, ID: v.Instance}
			s.Sessions = append(s.Sessions, ledger.Session{Holder: string(v.Holder), Name: string(v.Name), Instance: instance, Until: at(v.Until)})
			return key(string(v.Holder), string(v.Name))
		}),
	)
}

// readBucket decodes all values of a bucket. take returns the key that a value
// must have.
func readBucket[T any](tx *bolt.Tx, bucket string, take func(T) string) error {
	b := tx.Bucket([]byte(bucket))
	if b == nil {
		return fmt.Errorf("no %q", bucket)
	}
	return b.ForEach(func(k, raw []byte) error {
		var v T
		if err := decode(raw, &v); err != nil {
			return fmt.Errorf("%s %x: %w", bucket, k, err)
		}
		if want := take(v); want != string(k) {
			return fmt.Errorf("%s %x: %w: it belongs to %x", bucket, k, errDamaged, want)
		}
		return nil
	})
}

// commit makes changes durable, all or none.
func (f *file) commit(b *batch, meta storedMeta) (err error) {
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	defer f.whenBroken(&err)
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
	defer whenDamaged(f.path, &err)
	if f.broken { // bbolt would wait for its own locks
		return f.disk.Close()
	}
	return f.db.Close()
}
