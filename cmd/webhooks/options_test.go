package main

import (
	"io"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// FuzzOptions: a command line, one argument a line, is refused in words, or asks
// for something that can be done.
func FuzzOptions(f *testing.F) {
	const good = "--insecure\n--providers-config=/p\n"
	for _, seed := range []string{
		"", good, good + "--max-replacing=0%", good + "--max-replacing=-9223372036854775808", good + "--drift-poll=1ns", good + "--tls-cert=/c",
		good + "--listen=8443", good + "--log-format=\x00", "--help", "-=\n--", good + "--insecure=maybe", good + "--cloud-socket=" + strings.Repeat("x", 108),
	} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, lines string) {
		o, err := parseOptions(strings.Split(lines, "\n"), io.Discard)
		if err != nil {
			require.NotEmpty(t, err.Error())
			return
		}
		require.True(t, o.insecure || o.tlsCert != "" && o.tlsKey != "" && o.tokenFile != "")
		require.NotEmpty(t, o.providersConfig)
		require.NotZero(t, o.limit)
		for _, d := range []time.Duration{o.timing.ProvisioningDeadline, o.timing.ProvisioningPoll, o.timing.DriftPoll, o.timing.RemovalPoll, o.timing.BudgetPoll, o.timing.QuotaRetry} {
			require.GreaterOrEqual(t, d, minDuration)
		}
	})
}
