package soaktest

import (
	"context"
	"fmt"
	"net/http"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
)

// Series counts the series of a registry.
func Series(from prometheus.Gatherer) (Figure, error) {
	families, err := from.Gather()
	if err != nil {
		return Figure{}, fmt.Errorf("gather metrics: %w", err)
	}
	n := 0
	for _, f := range families {
		n += len(f.GetMetric())
	}
	return Figure{"series", float64(n), seriesSlack}, nil
}

// Scraped returns heap, resident memory, goroutines, open files and series of the process
// with metrics at url. The heap is the live heap of the last garbage collection, to which
// the goal of the next one is proportional.
func Scraped(ctx context.Context, url string) ([]Figure, error) {
	families, err := scrape(ctx, url)
	if err != nil {
		return nil, err
	}
	n := 0
	for _, f := range families {
		n += len(f.GetMetric())
	}
	gauge := func(name string) float64 {
		f := families[name]
		if f == nil || len(f.GetMetric()) != 1 {
			err = fmt.Errorf("%s has no %s", url, name)
			return 0
		}
		return f.GetMetric()[0].GetGauge().GetValue()
	}
	return []Figure{
		{"heap_MB", gauge("go_memstats_next_gc_bytes") / 2 / mega, heapSlack},
		{"resident_MB", gauge("process_resident_memory_bytes") / mega, residentSlack},
		{"goroutines", gauge("go_goroutines"), busySlack},
		{"files", gauge("process_open_fds"), busySlack},
		{"series", float64(n), seriesSlack},
	}, err
}

func scrape(ctx context.Context, url string) (map[string]*dto.MetricFamily, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return nil, fmt.Errorf("scrape: %w", err)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return nil, fmt.Errorf("scrape: %w", err)
	}
	defer resp.Body.Close()
	parser := expfmt.NewTextParser(model.LegacyValidation)
	families, err := parser.TextToMetricFamilies(resp.Body)
	if err != nil {
		return nil, fmt.Errorf("scrape %s: %w", url, err)
	}
	return families, nil
}
