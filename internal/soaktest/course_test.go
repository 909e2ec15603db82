package soaktest

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// course makes one of values that come at equal distances.
func course(slack float64, values ...float64) *Course {
	c := &Course{}
	for i, v := range values {
		c.Note(1000*i, Figure{"steady", 7, 0}, Figure{"heap_MB", v, slack})
	}
	return c
}

func TestFlat(t *testing.T) {
	tests := map[string]struct {
		values []float64
		slack  float64
		flat   bool
	}{
		"nothing changes":             {[]float64{9, 9, 9, 9, 9, 9, 9, 9, 9, 9}, 0, true},
		"it grows in the first half":  {[]float64{1, 3, 5, 7, 9, 10, 10, 10, 10, 10}, 0, true},
		"it goes up and down":         {[]float64{9, 12, 8, 12, 8, 12, 8, 12, 8, 12, 8, 12, 8}, 0.7, true},
		"it shrinks":                  {[]float64{9, 9, 9, 9, 9, 8, 7, 6, 5, 4}, 0, true},
		"it grows":                    {[]float64{1, 2, 3, 4, 5, 6, 7, 8, 9, 10}, 0, false},
		"it grows slowly":             {[]float64{100, 100, 100, 100, 100, 101, 102.5, 104, 105, 106.5}, 0, false},
		"it grows within the share":   {[]float64{100, 100, 100, 100, 100, 101, 102, 103, 104, 104.5}, 0, true},
		"it grows within the slack":   {[]float64{1, 1, 1, 1, 1, 2, 2, 3, 3, 4}, 3, true},
		"it grows beyond the slack":   {[]float64{1, 1, 1, 1, 1, 2, 3, 4, 5, 6}, 3, false},
		"it falls back only at times": {[]float64{1, 2, 3, 4, 5, 6, 3, 7, 8, 9}, 0, false},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			err := course(tt.slack, tt.values...).Flat()
			if tt.flat {
				assert.NoError(t, err)
				return
			}
			require.ErrorContains(t, err, "heap_MB grew by")
			assert.NotContains(t, err.Error(), "steady")
		})
	}
}

func TestFewSamplesSayNothing(t *testing.T) {
	assert.ErrorContains(t, course(0, 1, 1, 1, 1, 1, 1, 1, 1).Flat(), "has 4 samples")
	assert.Error(t, (&Course{}).Flat())
}

func TestSamplesAreShown(t *testing.T) {
	var out strings.Builder
	c := &Course{Out: &out}
	c.Note(10, Figure{"heap_MB", 1.5, 0}, Figure{"files", 12, 0})
	c.Note(20, Figure{"heap_MB", 1.25, 0}, Figure{"files", 13, 0})
	assert.Equal(t, "     done      heap_MB        files\n       10         1.50        12.00\n       20         1.25        13.00\n", out.String())
}

func TestFiguresOfAnotherProcess(t *testing.T) {
	reg := prometheus.NewRegistry()
	reg.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	server := httptest.NewServer(promhttp.HandlerFor(reg, promhttp.HandlerOpts{}))
	defer server.Close()
	defer http.DefaultClient.CloseIdleConnections()
	figures, err := Scraped(t.Context(), server.URL)
	require.NoError(t, err)
	require.Len(t, figures, 5)
	own, err := Own(reg)
	require.NoError(t, err)
	assert.Equal(t, own[4], figures[4])
	for _, f := range figures {
		assert.Positive(t, f.Value, f.Name)
	}

	empty := httptest.NewServer(promhttp.HandlerFor(prometheus.NewRegistry(), promhttp.HandlerOpts{}))
	defer empty.Close()
	_, err = Scraped(t.Context(), empty.URL)
	assert.ErrorContains(t, err, "it has no go_memstats_next_gc_bytes")
}

func TestFiguresOfThisProcess(t *testing.T) {
	reg := prometheus.NewRegistry()
	reg.MustRegister(collectors.NewGoCollector())
	figures, err := Own(reg)
	require.NoError(t, err)
	require.Len(t, figures, 5)
	for _, f := range figures {
		assert.Positive(t, f.Value, f.Name)
	}
}
