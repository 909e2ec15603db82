package soaktest

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"runtime"
	"slices"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
)

const mega = 1e6

// Slacks of the figures of a process.
const (
	heapSlack     = 1   // MB
	residentSlack = 8   // MB: the kernel reclaims pages late
	idleSlack     = 8   // goroutines and files, of short connections
	busySlack     = 24  // the same, of a process that is sampled under load
	seriesSlack   = 0.5 // none
)

// Own returns heap after a garbage collection, resident memory, goroutines and open files of
// this process, and the series of a registry.
func Own(from prometheus.Gatherer) ([]Figure, error) {
	runtime.GC()
	runtime.GC() // memory that finalizers released
	own := prometheus.NewRegistry()
	own.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	process, processErr := own.Gather()
	figures, figuresErr := ofProcess(process, "go_memstats_heap_alloc_bytes", idleSlack)
	families, err := from.Gather()
	if err := errors.Join(processErr, figuresErr, err); err != nil {
		return nil, fmt.Errorf("gather metrics: %w", err)
	}
	return append(figures, seriesOf(families)), nil
}

// Scraped returns heap, resident memory, goroutines, open files and series of the process
// with metrics at url. The heap is the goal of the next garbage collection, which is
// proportional to the live heap of the last one.
func Scraped(ctx context.Context, url string) ([]Figure, error) {
	families, err := scrape(ctx, url)
	if err != nil {
		return nil, fmt.Errorf("scrape %s: %w", url, err)
	}
	figures, err := ofProcess(families, "go_memstats_next_gc_bytes", busySlack)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", url, err)
	}
	figures[0].Value /= 2
	return append(figures, seriesOf(families)), nil
}

// ofProcess reads the figures of a process from its metrics.
func ofProcess(families []*dto.MetricFamily, heap string, slack float64) ([]Figure, error) {
	values := map[string]float64{}
	for _, f := range families {
		if len(f.GetMetric()) == 1 {
			values[f.GetName()] = f.GetMetric()[0].GetGauge().GetValue()
		}
	}
	for _, name := range []string{heap, "process_resident_memory_bytes", "go_goroutines", "process_open_fds"} {
		if _, found := values[name]; !found {
			return nil, fmt.Errorf("it has no %s", name)
		}
	}
	return []Figure{
		{"heap_MB", values[heap] / mega, heapSlack}, {"resident_MB", values["process_resident_memory_bytes"] / mega, residentSlack},
		{"goroutines", values["go_goroutines"], slack}, {"files", values["process_open_fds"], slack},
	}, nil
}

func seriesOf(families []*dto.MetricFamily) Figure {
	n := 0
	for _, f := range families {
		n += len(f.GetMetric())
	}
	return Figure{"series", float64(n), seriesSlack}
}

func scrape(ctx context.Context, url string) ([]*dto.MetricFamily, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return nil, err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	parser := expfmt.NewTextParser(model.LegacyValidation)
	families, err := parser.TextToMetricFamilies(resp.Body)
	return slices.Collect(maps.Values(families)), err
}
