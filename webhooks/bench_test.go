package webhooks

import (
	"bytes"
	"encoding/json"
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// BenchmarkSync answers a recorded request. The ratio is to the least that any
// hook in Go must do: decode that body with encoding/json, encode the answer.
func BenchmarkSync(b *testing.B) {
	body, err := os.ReadFile(recordedDir + "/4-sync-pod-running.json")
	require.NoError(b, err)
	h := recordedHooks()
	answer := answerTo(b, h, "sync", body)
	baseline := baselineOf(b, body, answer)
	b.ReportAllocs()
	start := time.Now()
	for b.Loop() {
		if _, err := h.sync(bytes.NewReader(body)); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(float64(time.Since(start))/float64(b.N)/float64(baseline), "ratio")
}

// baselineOf is the time of decoding body and encoding answer, generically.
func baselineOf(b *testing.B, body, answer []byte) time.Duration {
	b.Helper()
	var decodedAnswer any
	require.NoError(b, json.Unmarshal(answer, &decodedAnswer))
	const rounds = 2000
	start := time.Now()
	for range rounds {
		var v any
		if err := json.Unmarshal(body, &v); err != nil {
			b.Fatal(err)
		}
		if _, err := json.Marshal(decodedAnswer); err != nil {
			b.Fatal(err)
		}
	}
	return time.Since(start) / rounds
}
