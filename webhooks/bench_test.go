package webhooks

import (
	"bytes"
	"encoding/json"
	"os"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// BenchmarkSync answers a recorded request. Its ratio is to the least that a
// hook in Go could do with it: decode that body with encoding/json, encode the
// answer. The two take turns and medians are compared, so that a busy machine
// disturbs both alike.
func BenchmarkSync(b *testing.B) {
	body, err := os.ReadFile(recordedDir + "/4-sync-pod-running.json")
	require.NoError(b, err)
	h := recordedHooks()
	var answer any
	require.NoError(b, json.Unmarshal(answerTo(b, h, "sync", body), &answer))
	var ours, least []time.Duration
	for b.Loop() {
		least = append(least, timed(b, func() error { return decodeAndEncode(body, answer) }))
		ours = append(ours, timed(b, func() error {
			_, err := h.sync(bytes.NewReader(body))
			return err
		}))
	}
	b.ReportMetric(0, "ns/op") // of both together, which says nothing
	b.ReportMetric(float64(median(ours).Microseconds()), "µs/sync")
	b.ReportMetric(float64(median(ours))/float64(median(least)), "ratio")
}

func decodeAndEncode(body []byte, answer any) error {
	var v any
	if err := json.Unmarshal(body, &v); err != nil {
		return err
	}
	_, err := json.Marshal(answer)
	return err
}

func timed(b *testing.B, f func() error) time.Duration {
	b.Helper()
	start := time.Now()
	if err := f(); err != nil {
		b.Fatal(err)
	}
	return time.Since(start)
}

func median(all []time.Duration) time.Duration {
	slices.Sort(all)
	return all[len(all)/2]
}
