package webhooks

import (
	"bytes"
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// BenchmarkSync answers recorded requests, as compact as they came over the
// wire. Its figure is the ratio to the least that a hook in Go does with one:
// decode the body with encoding/json, into maps, and encode the same answer,
// out of maps. That hook checks nothing and decides nothing. The two take turns
// and medians are compared, so that a busy machine disturbs both alike.
func BenchmarkSync(b *testing.B) {
	files, err := filepath.Glob(recordedDir + "/*-sync-*.json")
	require.NoError(b, err)
	for _, file := range files {
		b.Run(strings.TrimSuffix(filepath.Base(file), ".json"), func(b *testing.B) {
			benchmarkSync(b, recordedHooks(), onTheWire(b, file))
		})
	}
}

func benchmarkSync(b *testing.B, h *Hooks, body []byte) {
	var answer any
	require.NoError(b, json.Unmarshal(answerTo(b, h, "sync", body), &answer))
	var ours, least []time.Duration
	for b.Loop() {
		least = append(least, timed(b, func() error { return decodeAndEncode(body, answer) }))
		ours = append(ours, timed(b, func() error {
			_, err := h.sync(context.Background(), bytes.NewReader(body))
			return err
		}))
	}
	b.ReportMetric(0, "ns/op") // it would be the sum of both
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

// customizeLimit is what a customize call may take: Metacontroller makes it
// while it handles events, once for every Proxy.
const customizeLimit = time.Millisecond

// BenchmarkCustomize fails when the limit is exceeded. No test does: on a busy
// machine a single call may take any time.
func BenchmarkCustomize(b *testing.B) {
	h, body := recordedHooks(), onTheWire(b, recordedDir+"/1a-customize-secret-ref.json")
	var all []time.Duration
	for b.Loop() {
		all = append(all, timed(b, func() error {
			_, err := h.customize(context.Background(), bytes.NewReader(body))
			return err
		}))
	}
	require.Less(b, median(all), customizeLimit)
	b.ReportMetric(float64(median(all).Microseconds()), "µs/customize")
}

// onTheWire reads a recorded request, which is indented for its readers.
func onTheWire(b *testing.B, file string) []byte {
	b.Helper()
	text, err := os.ReadFile(file)
	require.NoError(b, err)
	var body bytes.Buffer
	require.NoError(b, json.Compact(&body, text))
	return body.Bytes()
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
