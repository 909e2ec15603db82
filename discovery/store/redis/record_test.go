package redis

import (
	"log/slog"
	"testing"
	"time"

	goredis "github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	clocktesting "k8s.io/utils/clock/testing"

	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/discovery/lease"
)

// Data in Redis may have been written by anything.
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
		if names, err := parseNames(pair(name, "") + pair(value, "") + pair("", "")); assert.NoError(t, err) {
			assert.Equal(t, []string{name, value, ""}, names)
		}
		_, _ = parseNames(value)
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

// FuzzReplies has Redis answer anything to a load and to a call after it:
// a replica follows or reloads.
func FuzzReplies(f *testing.F) {
	const record = `1800000000000000 7 1700000000000000 60000000 6 3:uidi {"proxy":"a/b","holder":"h","session":"s"}`
	f.Add("1700000000000000", "5", "id", record, "1:hs", "1800000000000000 3:uidi", "6-1", "L")
	f.Add("-1", "-9223372036854775808", "id", `1 1 1 9223372036854775807 6 3:uidi {}`, "0:", "-1 0:", "6", "R")
	f.Add("0", "5", "", "", "", "", "6-", "C")
	f.Fuzz(func(t *testing.T, now, rev, id, value, name, until, entry, op string) {
		clk := clocktesting.NewFakeClock(time.Unix(1_700_000_000, 0))
		s := Open(Config{Options: &goredis.Options{}, Prefix: "p", Cooldown: time.Minute, Clock: clk, Log: slog.New(slog.DiscardHandler)})
		defer func() { require.NoError(t, s.Close()) }()
		all, err := parseContents([]any{now, rev, "n", "g", "changes", []any{id, value}, []any{name, until}, []any{name, until, "odd"}})
		if err != nil {
			return
		}
		for _, r := range all.state.Leases {
			require.Equal(t, id, r.ID)
			require.GreaterOrEqual(t, r.TTL, time.Duration(0))
		}
		s.resetMirror(all)
		require.True(t, s.isLoaded())
		_ = s.mirror.Usage(clk.Now())
		a, err := parseAnswer([]any{"ok", now, "", []any{[]any{entry, []any{"n", "m", op, id, value, until}}}})
		if err != nil {
			return
		}
		s.applyAnswer(a)
		if s.isLoaded() && len(a.changes) > 0 {
			require.True(t, a.changes[0].rev <= all.rev || a.changes[0].rev == s.last, "no gap")
		}
	})
}

// FuzzParseURL: an address is refused without a word of it, or one that can be
// dialled.
func FuzzParseURL(f *testing.F) {
	for _, seed := range []string{"redis://u:CANARY-5f2c@h:6379/1?prefix=a", "rediss://:CANARY-5f2c@[::1]:1?db=x&prefix=", "unix:///run/redis?db=1", "redis://h:99999", "redis:CANARY-5f2c", "redis://h:1?prefix={}", "redis://%zz"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, address string) {
		o, prefix, err := ParseURL(address)
		if err != nil {
			require.NotContains(t, err.Error(), "CANARY-5f2c")
			return
		}
		require.NotEmpty(t, prefix)
		require.NotContains(t, prefix, "{")
		require.True(t, dialable(o))
		again, _, err := ParseURL(address)
		require.NoError(t, err)
		require.Equal(t, o.Addr, again.Addr)
	})
}
