package journal

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"time"

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
