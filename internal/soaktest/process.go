package soaktest

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"runtime"
	"strconv"
	"strings"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
)

const mega = 1e6

// Slacks of the figures of a process.
const (
	heapSlack      = 1   // MB
	residentSlack  = 8   // MB: the kernel reclaims pages late
	goroutineSlack = 8   // of short connections
	fileSlack      = 8   // the same
	seriesSlack    = 0.5 // none
	busySlack      = 24  // goroutines and files of a process that is sampled under load
)

// Own returns heap after a garbage collection, resident memory, goroutines and open
// files of this process.
func Own() ([]Figure, error) {
	runtime.GC()
	runtime.GC() // memory that finalizers released
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	resident, err := residentOf(os.Getpid())
	if err != nil {
		return nil, err
	}
	files, err := filesOf(os.Getpid())
	if err != nil {
		return nil, err
	}
	return []Figure{
		{"heap_MB", float64(m.HeapAlloc) / mega, heapSlack}, {"resident_MB", resident, residentSlack},
		{"goroutines", float64(runtime.NumGoroutine()), goroutineSlack}, {"files", float64(files), fileSlack},
	}, nil
}

// residentOf is the resident memory of a process in MB.
func residentOf(pid int) (float64, error) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/statm", pid)) // proc(5): in pages
	if err != nil {
		return 0, fmt.Errorf("resident memory of a process: %w", err)
	}
	fields := strings.Fields(string(text))
	if len(fields) < 2 {
		return 0, fmt.Errorf("resident memory of a process: /proc says %q", text)
	}
	pages, err := strconv.ParseFloat(fields[1], 64)
	if err != nil {
		return 0, fmt.Errorf("resident memory of a process: %w", err)
	}
	return pages * float64(os.Getpagesize()) / mega, nil
}

// filesOf counts the open files of a process.
func filesOf(pid int) (int, error) {
	entries, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", pid))
	if err != nil {
		return 0, fmt.Errorf("open files of a process: %w", err)
	}
	return len(entries), nil
}

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
