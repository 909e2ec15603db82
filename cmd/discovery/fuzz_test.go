package main

import (
	"io"
	"strings"
	"testing"
	"time"

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
