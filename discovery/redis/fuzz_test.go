package redis

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/discovery/lease"
)

// What is in Redis may have been written by anybody.
func FuzzParse(f *testing.F) {
	f.Add("id", `1800000000000000 7 1700000000000000 60000000 6 3:uidi {"proxy":"a/b"}`)
	f.Add("3:uidtarget", "1800000000000000")
	f.Add("3:abcd", "1800000000000000 3:uidi")
	f.Add("99:a", "1 1 1 1 99999 x")
	f.Add("", "-1 ")
	f.Fuzz(func(t *testing.T, name, value string) {
		if r, err := parseRecord(name, value); err == nil {
			assert.Equal(t, name, r.ID)
		}
		_, _ = parseSession(name, value)
		_, _ = parseCooldown(name, value)
		_, _ = parseAnswer([]any{name, value, "changes", []any{[]any{name, []any{"n", value, name, value, name, value}}}})
		if a, b, err := unpair(pair(name, value)); assert.NoError(t, err) {
			assert.Equal(t, name, a)
			assert.Equal(t, value, b)
		}
	})
}

func TestRecordReadsWhatTheScriptsWrite(t *testing.T) {
	r, err := parseRecord("id", `1800000000000000 7 1700000000000000 60000000 6 3:uidi {"proxy":"a/b","session":"s s"}`)
	assert.NoError(t, err)
	assert.Equal(t, lease.Instance{ProxyUID: "uid", ID: "i"}, r.Instance)
	assert.Equal(t, time.Minute, r.TTL)
	assert.Equal(t, uint64(7), r.FencingToken)
	assert.Equal(t, "s s", r.Session)
	assert.Equal(t, int64(1800000000), r.ExpiresAt.Unix())
}
