package main

import (
	"bytes"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// FuzzOptions: a command line, one argument a line, is refused with an error, or
// valid.
func FuzzOptions(f *testing.F) {
	const good = "--socket=/s\n--providers-config=/p\n--installation=eu\n"
	for _, seed := range []string{
		"", good, good + "--mutations-per-second=NaN", good + "--mutations-per-second=+Inf", good + "--gcp-endpoint=http://%zz",
		good + "--gc-interval=-1ns\n--gc-min-age=9223372036854775807ns", good + "--ops-addr=:\n--log-level=LOUD", "--help", "--socket", "-=\n--", good + "--list-interval=1s\nstray",
	} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, lines string) {
		o, err := parseOptions(strings.Split(lines, "\n"), io.Discard)
		if err != nil {
			require.NotEmpty(t, err.Error())
			return
		}
		require.True(t, o.mutations > 0 && o.mutations <= 1000, o.mutations)
		require.Positive(t, o.mutationsBurst)
		for _, d := range []time.Duration{o.listInterval, o.quotaRetry, o.gcInterval, o.gcMinAge} {
			require.GreaterOrEqual(t, d, time.Second)
		}
		require.Regexp(t, installationPattern, o.installation)
		require.NotEmpty(t, o.systemNamespace)
	})
}

func TestNamespaceDisablesTheOrphanCollector(t *testing.T) {
	for args, disabled := range map[string]bool{
		"": false, "--namespace crawl": true, "--namespace crawl --gc-allow-namespaced": false,
	} {
		base := "--socket s --installation i --providers-config p "
		o, err := parseOptions(strings.Fields(base+args), &bytes.Buffer{})
		require.NoError(t, err)
		assert.Equal(t, disabled, o.gcDisabled() != "", args)
	}
}
