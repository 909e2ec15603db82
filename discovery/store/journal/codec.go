package journal

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"os"
	"runtime/debug"
	"time"

	bolt "go.etcd.io/bbolt"

	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/discovery/lease"
	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/discovery/store/ledger"
)

// Values are JSON behind its CRC-32C: bbolt has no checksums on pages, and a flipped bit
// must not become a lease.

// errDamaged: a value differs from what was written.
var errDamaged = errors.New("damaged record")

const checksumSize = 4

func encode(v any) ([]byte, error) {
	body, err := json.Marshal(v)
	if err != nil {
		return nil, fmt.Errorf("encode %T: %w", v, err)
	}
	out := binary.BigEndian.AppendUint32(make([]byte, 0, checksumSize+len(body)), checksum(body))
	return append(out, body...), nil
}

func decode(raw []byte, v any) error {
	if len(raw) < checksumSize {
		return fmt.Errorf("%w: %d bytes", errDamaged, len(raw))
	}
	body := raw[checksumSize:]
	if checksum(body) != binary.BigEndian.Uint32(raw) {
		return fmt.Errorf("%w: wrong checksum", errDamaged)
	}
	if err := json.Unmarshal(body, v); err != nil {
		return fmt.Errorf("%w: %w", errDamaged, err)
	}
	return nil
}

func checksum(b []byte) uint32 { return crc32.Checksum(b, crc32.MakeTable(crc32.Castagnoli)) }

// storedLease is a ledger.Record on disk. Deadlines are nanoseconds on a timeline. What
// clients choose is bytes, since JSON strings cannot hold all of them.
type storedLease struct {
	ID          string `json:"id"`
	UID         string `json:"uid"`
	Instance    string `json:"instance"`
	Proxy       string `json:"proxy"`
	Holder      []byte `json:"holder,omitempty"`
	Session     []byte `json:"session,omitempty"`
	Target      string `json:"target,omitempty"`
	Key         []byte `json:"key,omitempty"`
	Fingerprint []byte `json:"fingerprint,omitempty"`
	TTL         int64  `json:"ttl"`
	Granted     int64  `json:"granted"`
	Expires     int64  `json:"expires"`
	Fence       uint64 `json:"fence"`
}

func storeLease(r ledger.Record, line timeline) storedLease {
	return storedLease{
		ID: r.ID, UID: r.Instance.ProxyUID, Instance: r.Instance.ID, Proxy: r.Proxy,
		Holder: []byte(r.Holder), Session: []byte(r.Session), Target: r.Target, Key: []byte(r.Key), Fingerprint: []byte(r.Fingerprint),
		TTL: int64(r.TTL), Granted: r.GrantedAt.UnixNano(), Expires: line.nanos(r.ExpiresAt), Fence: r.FencingToken,
	}
}

func (s storedLease) record() ledger.Record {
	return ledger.Record{Key: string(s.Key), Fingerprint: string(s.Fingerprint), Lease: lease.Lease{
		ID: s.ID, Instance: lease.Instance{ProxyUID: s.UID, ID: s.Instance}, Proxy: s.Proxy,
		Holder: string(s.Holder), Session: string(s.Session), Target: s.Target,
		TTL: time.Duration(s.TTL), GrantedAt: at(s.Granted), ExpiresAt: at(s.Expires), FencingToken: s.Fence,
	}}
}

// storedCooldown is a ledger.Cooldown on disk.
type storedCooldown struct {
	UID    string `json:"uid"`
	Target string `json:"target,omitempty"`
	Until  int64  `json:"until"`
}

// storedSession is a ledger.Session on disk.
type storedSession struct {
	Holder   []byte `json:"holder,omitempty"`
	Name     []byte `json:"name"`
	UID      string `json:"uid"`
	Instance string `json:"instance"`
	Until    int64  `json:"until"`
}

// storedMeta has the time of the last commit and the last fencing token.
type storedMeta struct {
	Format int    `json:"format"`
	Alive  int64  `json:"alive"` // 0: new file
	Fence  uint64 `json:"fence"`
}

// key joins parts unambiguously.
func key(parts ...string) string {
	var out []byte
	for _, p := range parts {
		out = binary.AppendUvarint(out, uint64(len(p)))
		out = append(out, p...)
	}
	return string(out)
}

// leaseKey sorts leases by grant, so that the leases of one commit share pages.
func leaseKey(fence uint64) string { return string(binary.BigEndian.AppendUint64(nil, fence)) }

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
