package journal

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	bolt "go.etcd.io/bbolt"

	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/discovery/lease"
)

// filled makes a file with some of everything, and returns its bytes and what
// it holds.
func filled(t testing.TB) ([]byte, stored) {
	t.Helper()
	clk := newClock()
	cfg := testConfig(filepath.Join(t.TempDir(), "leases"), clk)
	s := open(t, cfg)
	offer(s, 20, 9)
	for i := range 40 {
		l, err := s.Acquire(t.Context(), lease.Request{TTL: time.Hour, Holder: "h", Session: fmt.Sprint(i % 7), Key: fmt.Sprint(i), Target: "example.com"})
		require.NoError(t, err)
		if i%5 == 0 {
			require.NoError(t, s.Report(t.Context(), l.ID, lease.Report{Result: lease.ResultBanned, Target: fmt.Sprint(i)}))
		}
	}
	require.NoError(t, s.Close())
	raw, err := os.ReadFile(cfg.Path)
	require.NoError(t, err)
	f, err := openFile(cfg.Path, true)
	require.NoError(t, err)
	held, err := f.load()
	require.NoError(t, err)
	require.NoError(t, f.close())
	require.Len(t, held.Leases, 40)
	require.Len(t, held.Cooldowns, 8)
	require.Len(t, held.Sessions, 7)
	return raw, held
}

// tryOpen opens a store on these bytes.
func tryOpen(t *testing.T, raw []byte) (*Store, error) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "leases")
	require.NoError(t, os.WriteFile(path, raw, 0o600))
	s, err := Open(testConfig(path, newClock()))
	if err != nil {
		after, readErr := os.ReadFile(path)
		require.NoError(t, readErr)
		assert.True(t, bytes.Equal(raw, after), "a refused file is left as it is")
	}
	return s, err
}

func TestFilesThatAreRefused(t *testing.T) {
	raw, _ := filled(t)
	foreign := filepath.Join(t.TempDir(), "foreign")
	db, err := bolt.Open(foreign, 0o600, nil)
	require.NoError(t, err)
	require.NoError(t, db.Update(func(tx *bolt.Tx) error { _, err := tx.CreateBucket([]byte("photos")); return err }))
	require.NoError(t, db.Close())
	foreignRaw, err := os.ReadFile(foreign)
	require.NoError(t, err)
	tests := map[string]struct {
		raw  []byte
		want string
	}{
		"text":             {[]byte("My diary.\n"), "is damaged or not a lease file"},
		"a long text":      {bytes.Repeat([]byte("My diary.\n"), 10_000), "is damaged or not a lease file"},
		"another bbolt's":  {foreignRaw, `it has a bucket "photos" and no "meta"`},
		"cut in half":      {raw[:len(raw)/2], "is damaged or not a lease file"},
		"one page":         {raw[:4096], "is damaged or not a lease file"},
		"a byte of it all": {raw[:1], "is damaged or not a lease file"},
		"nothing of it":    {nil, "is damaged or not a lease file (it is empty, which this program never leaves behind)"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			_, err := tryOpen(t, tt.raw)
			require.ErrorContains(t, err, tt.want)
			assert.ErrorContains(t, err, "Move it away to start without leases")
		})
	}
	_, err = Open(testConfig(t.TempDir(), newClock()))
	assert.ErrorContains(t, err, "is not a regular file")
	_, err = Open(testConfig(filepath.Join(t.TempDir(), "no", "leases"), newClock()))
	assert.ErrorContains(t, err, "no such file or directory; create the folder")
}

func TestFilesOfNewerVersions(t *testing.T) {
	path := filepath.Join(t.TempDir(), "leases")
	db, err := bolt.Open(path, 0o600, nil)
	require.NoError(t, err)
	require.NoError(t, db.Update(func(tx *bolt.Tx) error {
		if _, err := tx.CreateBucket([]byte(bucketMeta)); err != nil {
			return err
		}
		return write(tx, rowKey{bucketMeta, metaKey}, storedMeta{Format: format + 1})
	}))
	require.NoError(t, db.Close())
	_, err = Open(testConfig(path, newClock()))
	assert.ErrorContains(t, err, "has format 2 and this version reads 1; use the version that wrote it")
}

// TestDamageNeverBecomesALease flips bits and tears pages. The file is refused,
// or its contents are what was written.
func TestDamageNeverBecomesALease(t *testing.T) {
	raw, held := filled(t)
	known := map[string]lease.Lease{}
	for _, r := range held.Leases {
		known[r.ID] = r.Lease
	}
	seed := rand.Uint64()
	rnd := rand.New(rand.NewPCG(seed, 0))
	refused := 0
	for i := range 150 {
		broken := bytes.Clone(raw)
		used := 16 * os.Getpagesize()
		switch at := rnd.IntN(min(used, len(raw))); i % 3 {
		case 0: // a bit
			broken[at] ^= 1 << rnd.IntN(8)
		case 1: // a sector of zeroes
			at -= at % 512
			clear(broken[at : at+512])
		case 2: // a page of noise
			at -= at % os.Getpagesize()
			for j := range os.Getpagesize() {
				broken[at+j] = byte(rnd.Uint32())
			}
		}
		path := filepath.Join(t.TempDir(), "leases")
		require.NoError(t, os.WriteFile(path, broken, 0o600))
		got, err := loadFile(path)
		if err != nil {
			refused++
			assert.ErrorContains(t, err, path, "seed %d, %d", seed, i)
			continue
		}
		for _, r := range got.Leases {
			require.Equal(t, known[r.ID], r.Lease, "seed %d, %d", seed, i)
		}
	}
	assert.Greater(t, refused, 25)
}

func loadFile(path string) (stored, error) {
	f, err := openFile(path, true)
	if err != nil {
		return stored{}, err
	}
	defer f.close()
	return f.load()
}

func FuzzDecode(f *testing.F) {
	good, err := encode(storedLease{ID: "x", Holder: []byte("h")})
	require.NoError(f, err)
	f.Add(good)
	f.Add([]byte(nil))
	f.Fuzz(func(t *testing.T, raw []byte) {
		var v storedLease
		if decode(raw, &v) != nil {
			return
		}
		again, err := encode(v)
		require.NoError(t, err)
		var w storedLease
		require.NoError(t, decode(again, &w))
		require.Equal(t, v.record(), w.record())
	})
}

// FuzzFile writes anything at all over a file of leases, and cuts it anywhere: it
// is refused and left as it is, or its contents are what was written. A second read
// returns the same.
func FuzzFile(f *testing.F) {
	raw, held := filled(f)
	known := map[string]lease.Lease{}
	for _, r := range held.Leases {
		known[r.ID] = r.Lease
	}
	page := uint32(os.Getpagesize())
	f.Add(uint32(0), []byte("My diary."), uint32(len(raw)))
	f.Add(page, []byte{0xed, 0xda, 0x0c, 0xed}, 3*page)
	f.Add(4*page+16, []byte{0xff, 0, 0, 0, 1}, uint32(len(raw)))
	f.Add(uint32(0), []byte{}, uint32(0))
	dir := f.TempDir()
	f.Fuzz(func(t *testing.T, at uint32, patch []byte, size uint32) {
		broken := bytes.Clone(raw)
		copy(broken[at%uint32(len(raw)):], patch)
		broken = broken[:size%uint32(len(raw)+1)]
		path := filepath.Join(dir, "leases")
		require.NoError(t, os.WriteFile(path, broken, 0o600))
		got, err := loadFile(path)
		if err != nil {
			require.ErrorContains(t, err, path)
			after, readErr := os.ReadFile(path)
			require.NoError(t, readErr)
			require.True(t, bytes.Equal(broken, after), "a refused file is left as it is")
			return
		}
		for _, r := range got.Leases {
			require.Equal(t, known[r.ID], r.Lease)
		}
		again, err := loadFile(path)
		require.NoError(t, err)
		require.Len(t, again.Leases, len(got.Leases))
	})
}
