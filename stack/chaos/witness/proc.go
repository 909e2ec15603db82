package witness

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"reflect"
	"strconv"
	"strings"
	"time"

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
	folders, _ := filepath.Glob(filepath.Join(t.cfg.Proc, "[0-9]*"))
	for _, folder := range folders {
		pod, vm := t.owner(folder)
		if pod == "" && vm == "" {
			continue
		}
		s, err := readStat(folder)
		if err != nil {
			continue
		}
		out = append(out, history.Process{PID: s.pid, Started: s.started, Name: s.name, State: s.state, Pod: pod, VM: vm})
	}
	return out
}

func (t *processTable) owner(folder string) (pod, vm string) {
	cwd, _ := os.Readlink(filepath.Join(folder, "cwd"))
	if pod, vm = below(cwd, t.cfg.PodRoot), below(cwd, t.cfg.VMRoot); pod != "" || vm != "" {
		return strings.TrimPrefix(pod, "pod-"), vm
	}
	args, _ := os.ReadFile(filepath.Join(folder, "cmdline"))
	for arg := range bytes.SplitSeq(args, []byte{0}) {
		if pod = below(string(arg), t.cfg.PodRoot); pod != "" {
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

// stat is /proc/PID/stat.
type stat struct {
	pid     int
	name    string
	state   string
	started uint64
	rss     int64 // bytes
}

func readStat(folder string) (stat, error) {
	b, err := os.ReadFile(filepath.Join(folder, "stat"))
	if err != nil {
		return stat{}, err
	}
	return parseStat(string(b))
}

// parseStat parses a line whose name may contain spaces and parentheses:
// proc_pid_stat(5).
func parseStat(line string) (stat, error) {
	open, closed := strings.IndexByte(line, '('), strings.LastIndexByte(line, ')')
	if open < 1 || closed < open {
		return stat{}, fmt.Errorf("stat %q has no name", line)
	}
	fields := strings.Fields(line[closed+1:]) // the first is field 3
	if len(fields) < 22 {
		return stat{}, fmt.Errorf("stat %q has %d fields", line, len(fields)+2)
	}
	pid, err1 := strconv.Atoi(strings.TrimSpace(line[:open]))
	started, err2 := strconv.ParseUint(fields[19], 10, 64)
	pages, err3 := strconv.ParseInt(fields[21], 10, 64)
	if err1 != nil || err2 != nil || err3 != nil {
		return stat{}, fmt.Errorf("stat %q has bad numbers", line)
	}
	return stat{
		pid: pid, name: line[open+1 : closed], state: fields[0], started: started, rss: pages * int64(os.Getpagesize()),
	}, nil
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
	waited, err := readPressure(filepath.Join(g.cfg.Proc, "pressure", "cpu"))
	if err == nil && g.known {
		sample.Waited = waited - g.waited
	}
	g.looked, g.waited, g.known = now, waited, err == nil
	g.cfg.Recorder.Add(history.Record{Pressure: &sample})
}

// readPressure returns how long some task has waited since boot.
func readPressure(path string) (time.Duration, error) {
	b, err := os.ReadFile(path)
	if err != nil {
		return 0, err
	}
	line, _, _ := strings.Cut(string(b), "\n")
	_, total, ok := strings.Cut(line, "total=")
	micros, err := strconv.ParseInt(strings.TrimSpace(total), 10, 64)
	if !ok || !strings.HasPrefix(line, "some ") || err != nil {
		return 0, fmt.Errorf("%s: no total of some", path)
	}
	return time.Duration(micros) * time.Microsecond, nil
}
