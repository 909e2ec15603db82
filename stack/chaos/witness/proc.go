package witness

import (
	"context"
	"errors"
	"math"
	"path/filepath"
	"reflect"
	"strconv"
	"strings"
	"time"

	"github.com/prometheus/procfs"

	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/stack/chaos/history"
)

// processTable observes the processes that serve as proxies.
type processTable struct {
	cfg  *Config
	last []history.Process // nil before the first look
}

func (t *processTable) look(context.Context) {
	now := t.scan()
	if reflect.DeepEqual(now, t.last) {
		return
	}
	t.last = now
	t.cfg.Recorder.Add(history.Record{Processes: &history.Processes{Processes: now}})
}

// scan finds the processes by their working directory or an argument. It skips those
// that exit meanwhile.
func (t *processTable) scan() []history.Process {
	out := []history.Process{}
	all, _ := procfs.AllProcs()
	for _, p := range all {
		pod, vm := t.owner(p)
		if pod == "" && vm == "" {
			continue
		}
		if s, err := p.Stat(); err == nil {
			out = append(out, history.Process{PID: s.PID, Started: s.Starttime, Name: s.Comm, State: s.State, Pod: pod, VM: vm})
		}
	}
	return out
}

func (t *processTable) owner(p procfs.Proc) (pod, vm string) {
	cwd, _ := p.Cwd()
	if pod, vm = below(cwd, t.cfg.PodRoot), below(cwd, t.cfg.VMRoot); pod != "" || vm != "" {
		return strings.TrimPrefix(pod, "pod-"), vm
	}
	args, _ := p.CmdLine()
	for _, arg := range args {
		if pod = below(arg, t.cfg.PodRoot); pod != "" {
			return strings.TrimPrefix(pod, "pod-"), ""
		}
	}
	return "", ""
}

// below returns the first folder of path below root, "" when path is not below it.
func below(path, root string) string {
	rest, ok := strings.CutPrefix(path, filepath.Clean(root)+"/")
	if !ok {
		return ""
	}
	first, _, _ := strings.Cut(rest, "/")
	return first
}

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
	process, err := procfs.NewProc(p.PID)
	if err != nil {
		return m, err
	}
	s, err := process.Stat()
	if err != nil {
		return m, err
	}
	m.Started, m.RSS = s.Starttime, int64(s.ResidentMemory())
	m.FDs, err = process.FileDescriptorsLen()
	return m, err
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

// pressureGauge measures how starved of CPU the machine is.
type pressureGauge struct {
	cfg    *Config
	looked time.Duration
	waited time.Duration
	known  bool
}

// nap is the sleep whose delay the gauge measures.
const nap = 20 * time.Millisecond

// look naps for a period and then records the largest delay.
func (g *pressureGauge) look(ctx context.Context) {
	var late time.Duration
	for began := g.cfg.Clock.Now(); g.cfg.Clock.Since(began) < g.cfg.PressurePeriod; {
		asleep := g.cfg.Clock.Now()
		select {
		case <-ctx.Done():
			return
		case <-g.cfg.Clock.After(nap):
		}
		late = max(late, g.cfg.Clock.Since(asleep)-nap)
	}
	now := g.cfg.Recorder.Now()
	sample := history.Pressure{Over: now - g.looked, Waited: -1, Late: late}
	waited, known := waitedForCPU()
	if known && g.known {
		sample.Waited = waited - g.waited
	}
	g.looked, g.waited, g.known = now, waited, known
	g.cfg.Recorder.Add(history.Record{Pressure: &sample})
}

// waitedForCPU returns how long some task has waited since boot, where the kernel counts it.
func waitedForCPU() (waited time.Duration, known bool) {
	fs, err := procfs.NewDefaultFS()
	if err != nil {
		return 0, false
	}
	pressure, err := fs.PSIStatsForResource("cpu")
	if err != nil || pressure.Some == nil {
		return 0, false
	}
	return time.Duration(pressure.Some.Total) * time.Microsecond, true
}
