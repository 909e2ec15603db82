package journal

import (
	"errors"
	"fmt"
	"os"
	"runtime/debug"

	bolt "go.etcd.io/bbolt"

	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/discovery/lease"
	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/discovery/store/ledger"
)

// load reads and verifies everything.
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
		s.Fence = meta.Fence
		if meta.Alive != 0 {
			s.alive = at(meta.Alive)
		}
		return readState(tx, &s.State)
	})
	if err != nil && !errors.Is(err, errFormat) {
		return stored{}, damaged(f.path, err)
	}
	return s, err
}

// checkSize detects a truncated file.
func (f *file) checkSize(tx *bolt.Tx) error {
	info, err := os.Stat(f.path)
	if err != nil {
		return err
	}
	if info.Size() < tx.Size() {
		return fmt.Errorf("it is truncated to %d of %d bytes", info.Size(), tx.Size())
	}
	return nil
}

// errFormat: another version of this program wrote the file.
var errFormat = errors.New("unknown format")

// readMeta returns nil for a file without any bucket.
func readMeta(tx *bolt.Tx) (*storedMeta, error) {
	b := tx.Bucket([]byte(bucketMeta))
	if b == nil {
		if name, _ := tx.Cursor().First(); name != nil {
			return nil, fmt.Errorf("it has a bucket %q and no %q", name, bucketMeta)
		}
		return nil, nil
	}
	meta := &storedMeta{}
	if err := decode(b.Get([]byte(metaKey)), meta); err != nil {
		return nil, fmt.Errorf("%s: %w", bucketMeta, err)
	}
	if meta.Format != format {
		return nil, fmt.Errorf("%w: %s has format %d and this version reads %d; use the version that wrote it", errFormat, tx.DB().Path(), meta.Format, format)
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

// readBucket decodes all values of a bucket. take returns the key that a value must
// have.
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
			return fmt.Errorf("%s %x: %w: its key should be %x", bucket, k, errDamaged, want)
		}
		return nil
	})
}
