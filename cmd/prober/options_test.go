package main

import (
	"io"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// FuzzOptions: a command line, one argument a line, either returns an error or valid
// options.
func FuzzOptions(f *testing.F) {
	const good = "--system-namespace=s\n"
	for _, seed := range []string{
		"", good, good + "--fleet-share=NaN", good + "--fleet-share=-0", good + "--shard=3/3", good + "--shard=0/99999999999", good + "--workers=0x10",
		good + "--target-hold=-1ns", good + "--namespace=A b", "--probe-ca=/no/such\n" + good, "--help", "--version", "-=\n--", "--workers",
	} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, lines string) {
		if strings.Contains(lines, "probe-ca=/") && !strings.Contains(lines, "/no/such") {
			return // any file of the machine
		}
		o, err := parseOptions(strings.Split(lines, "\n"), io.Discard)
		if err != nil {
			require.NotEmpty(t, err.Error())
			return
		}
		require.True(t, o.workers >= 1 && o.workers <= maxWorkers)
		require.True(t, o.outage.FleetShare >= 0 && o.outage.FleetShare <= 1, o.outage.FleetShare)
		require.True(t, o.outage.TargetHold >= 0 && o.outage.FleetHold >= 0)
		require.True(t, o.shard.Count >= 1 && o.shard.Index >= 0 && o.shard.Index < o.shard.Count)
		require.True(t, isNamespace(o.systemNamespace))
		require.NotNil(t, o.roots)
	})
}
