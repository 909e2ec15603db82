package witness

import (
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/stack/chaos/history"
)

// figures samples every program.
type figures struct {
	cfg    *Config
	reader *reader
	gaps   map[string]*gap
}

func newFigures(cfg *Config) *figures {
	return &figures{cfg: cfg, reader: newReader(2 * time.Second), gaps: map[string]*gap{}}
}

func (f *figures) look(ctx context.Context) {
	for _, p := range f.cfg.Programs() {
		g := f.gaps[p.Name]
		if g == nil {
			g = &gap{observer: "metrics/" + p.Name, recorder: f.cfg.Recorder}
			f.gaps[p.Name] = g
		}
		m, err := f.sample(ctx, p)
		if err != nil && ctx.Err() == nil {
			g.fail(err)
			continue
		}
		g.ok() // also when the witness ends
		if err == nil {
			f.cfg.Recorder.Add(history.Record{Metrics: &m})
		}
	}
}

func (f *figures) sample(ctx context.Context, p Program) (history.Metrics, error) {
	m := history.Metrics{Process: p.Name, PID: p.PID, Goroutines: -1, Heap: -1, Series: -1}
	if p.PID == 0 {
		return m, errors.New("it does not run")
	}
	if p.MetricsURL != "" {
		body, err := f.reader.read(ctx, p.MetricsURL)
		if err != nil {
			return m, err
		}
		m.Series, m.Goroutines, m.Heap = parseMetrics(string(body))
	}
	folder := filepath.Join(f.cfg.Proc, strconv.Itoa(p.PID))
	s, err := readStat(folder)
	if err != nil {
		return m, err
	}
	fds, err := os.ReadDir(filepath.Join(folder, "fd"))
	if err != nil {
		return m, fmt.Errorf("open files: %w", err)
	}
	m.Started, m.RSS, m.FDs = s.started, s.rss, len(fds)
	return m, nil
}

// parseMetrics counts the series of a page in Prometheus' text format, and returns the
// values of two of them, -1 for missing ones.
func parseMetrics(page string) (series, goroutines int, heap int64) {
	goroutines, heap = -1, -1
	for line := range strings.Lines(page) {
		line = strings.TrimSpace(line)
		if line == "" || line[0] == '#' {
			continue
		}
		series++
		name, value, _ := strings.Cut(line, " ")
		switch name {
		case "go_goroutines":
			goroutines = int(number(value))
		case "go_memstats_heap_inuse_bytes":
			heap = number(value)
		}
	}
	return series, goroutines, heap
}

func number(text string) int64 {
	v, err := strconv.ParseFloat(text, 64)
	if err != nil || math.IsNaN(v) || math.Abs(v) > 1<<60 {
		return -1
	}
	return int64(v)
}
