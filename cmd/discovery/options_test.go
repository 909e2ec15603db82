package main

import (
	"bytes"
	"io"
	"strings"
	"testing"
	"time"

	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/internal/flags"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// FuzzOptions: a command line, one argument a line, and the token in the
// environment are refused in words that hold no secret, or ask for something that
// can be done.
func FuzzOptions(f *testing.F) {
	const canary = "CANARY-5f2c"
	for _, seed := range []string{
		"", "--insecure", "--insecure\n--token-rate=NaN", "--insecure\n--token-rate=+Inf", "--insecure\n--drift=1", "--insecure\n--max-lease-ttl=-1ns",
		"--insecure\n--lease-store=redis://u:" + canary + "@h:1?prefix=", "--insecure\n--lease-store=rediss://:" + canary + "@[::1]:70000", "--insecure\n--lease-store=file:",
		"--tokens-file=/t", "--help", "-=\n--", "--insecure=maybe", "--insecure\n--lease-store=mysql:" + canary,
		"---lease-store=redis://:" + canary + "@h:1", "--token-rate\n--lease-store=redis://:" + canary + "@h:1",
		"*l\x01\x06--lease-store=redis://u:" + canary, "lease-store=redis://:" + canary + "@h:1",
	} {
		f.Add(seed, "long-enough-"+canary)
		f.Add(seed, canary)
		f.Add(seed, "")
	}
	f.Fuzz(func(t *testing.T, lines, token string) {
		if strings.Contains(token, "\x00") {
			return // no environment holds that
		}
		t.Setenv(tokenVariable, token)
		o, err := parseOptions(strings.Split(lines, "\n"), io.Discard)
		if err != nil {
			require.NotEmpty(t, err.Error())
			if !strings.Contains(lines, canary) {
				require.NotContains(t, err.Error(), canary, "of the token")
			}
			if _, where, ok := strings.Cut(lines, "--lease-store=redis:"); ok && strings.Count(lines, canary) == strings.Count(strings.SplitN(where, "\n", 2)[0], canary) {
				require.NotContains(t, err.Error(), canary)
			}
			return
		}
		require.True(t, o.insecure || o.token != "" || o.tokensFile != "")
		require.True(t, o.tokenRate >= 0 && o.tokenRate <= 1e6, o.tokenRate)
		require.GreaterOrEqual(t, o.maxLeaseTTL, time.Second)
		require.GreaterOrEqual(t, o.leaseCooldown, time.Duration(0))
		require.LessOrEqual(t, o.drain, 10*time.Second)
		_, err = storeKindOf(o.leaseStore)
		require.NoError(t, err)
	})
}

func TestOptionsListEverythingThatIsWrong(t *testing.T) {
	t.Setenv("DISCOVERY_TOKEN", " \n")
	_, err := parseOptions([]string{
		"--addr", "8090", "--ops-addr", "", "--lease-store", "mysql://user:CANARY@host", "--lease-cooldown", "-1s", "--max-lease-ttl", "10ms",
		"--verdict-max-age", "0", "--system-namespace", "", "--log-level", "loud",
	}, &bytes.Buffer{})
	require.Error(t, err)
	for _, want := range []string{
		`--addr "8090": want host:port, such as :8090`,
		`--ops-addr "": want host:port`,
		`--lease-store "mysql:...": want memory, file:PATH, redis://HOST:PORT, rediss://HOST:PORT or unix:///PATH`,
		`--lease-cooldown -1s: want 0 or more`,
		`--max-lease-ttl 10ms: want at least 1s`,
		`--verdict-max-age 0s: want at least 1s`,
		`--system-namespace is empty`,
		`DISCOVERY_TOKEN is empty`,
		`--log-level "loud"`,
	} {
		assert.ErrorContains(t, err, want)
	}
	assert.NotContains(t, err.Error(), "CANARY")
}

func TestOptions(t *testing.T) {
	t.Setenv("DISCOVERY_TOKEN", "long-enough-token\n")
	t.Setenv("PX_MAX_LEASE_TTL", "2h")
	o, err := parseOptions([]string{"--verdict-max-age", "90s"}, &bytes.Buffer{})
	require.NoError(t, err)
	assert.Equal(t, "long-enough-token", o.token)
	assert.Equal(t, 2*time.Hour, o.maxLeaseTTL)
	assert.Equal(t, 90*time.Second, o.verdictMaxAge)
	assert.Equal(t, ":8090", o.addr)
	assert.Equal(t, ":8083", o.OpsAddr)
	assert.Equal(t, 10*time.Minute, o.leaseCooldown)
	assert.Empty(t, o.namespace)
	assert.Equal(t, "default", o.systemNamespace)
	assert.Equal(t, "memory", o.leaseStore)

	_, err = parseOptions([]string{"--help"}, &bytes.Buffer{})
	assert.ErrorIs(t, err, flags.ErrHelp)
	for _, args := range [][]string{{"--lease-store", "memory2"}, {"--lease-store", "memory:x"}, {"--lease-store", "file"}, {"--lease-store", "file:"}, {"--lease-store", "file:///x"}, {"--lease-store", "redis:localhost"}, {"--lease-store", "redis://:CANARY@host?no_such=1"}, {"--nonsense"}, {"stray"}, {"--insecure=maybe"}} {
		_, err = parseOptions(args, &bytes.Buffer{})
		assert.Error(t, err, args)
	}

	_, err = parseOptions([]string{"--tokens-file", "/x"}, &bytes.Buffer{})
	assert.ErrorContains(t, err, "DISCOVERY_TOKEN and --tokens-file are both set")
	t.Setenv("DISCOVERY_TOKEN", "CANARY-short")
	_, err = parseOptions([]string{"--insecure"}, &bytes.Buffer{})
	assert.ErrorContains(t, err, "DISCOVERY_TOKEN: it has 12 bytes and can be guessed; want at least 16")
	assert.NotContains(t, err.Error(), "CANARY")

	t.Setenv("DISCOVERY_TOKEN", "")
	_, err = parseOptions([]string{"--insecure"}, &bytes.Buffer{})
	assert.NoError(t, err)
	_, err = parseOptions([]string{"--tokens-file", "/x"}, &bytes.Buffer{})
	assert.NoError(t, err)
	_, err = parseOptions([]string{"--insecure", "--token-rate", "-1"}, &bytes.Buffer{})
	assert.ErrorContains(t, err, "--token-rate -1: want 0, for no limit, to 1000000")
}
