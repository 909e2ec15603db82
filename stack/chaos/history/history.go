// Package history is the record of a fault campaign: everything that was done to the
// system and everything that was observed, one JSON record a line, so that the checker
// can run again without the campaign.
//
// All times are offsets on the campaign's monotonic clock. Begin has the wall time of
// offset 0, to convert the wall times of the system.
package history

import (
	"bufio"
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"time"
)

// History is all records by kind, in the order of At; Faults and Gaps in that of From.
type History struct {
	Begin     Begin
	Stages    []Stage
	Faults    []Fault // each once; To of one that did not end is the history's End
	Truths    []Truth
	Acts      []Act
	Calls     []Call
	Crawls    []Crawl
	Objects   []Object
	Gaps      []Gap
	VMs       []VMs
	Processes []Processes
	Metrics   []Metrics
	Pressure  []Pressure
	End       time.Duration // At of the last record
	Torn      bool          // the last line is cut: the campaign was killed
}

// Open reads the history at path.
func Open(path string) (*History, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("open the history: %w", err)
	}
	defer file.Close()
	h, err := Read(file)
	if err != nil {
		return nil, fmt.Errorf("history %s: %w", path, err)
	}
	return h, nil
}

// Read reads a history, without a cut last line.
func Read(from io.Reader) (*History, error) {
	lines := bufio.NewReaderSize(from, 1<<20)
	var records []Record
	torn := false
	for n := 1; ; n++ {
		line, err := lines.ReadBytes('\n')
		if errors.Is(err, io.EOF) {
			torn = len(line) > 0
			break
		}
		if err != nil {
			return nil, fmt.Errorf("line %d: %w", n, err)
		}
		record, err := parse(line, n)
		if err != nil {
			return nil, err
		}
		records = append(records, record)
	}
	h, err := New(records...)
	if err == nil {
		h.Torn = torn
	}
	return h, err
}

func parse(line []byte, n int) (Record, error) {
	var record Record
	d := json.NewDecoder(bytes.NewReader(line))
	d.DisallowUnknownFields()
	if err := d.Decode(&record); err != nil {
		return Record{}, fmt.Errorf("line %d: %w", n, err)
	}
	stamp := record.stamp()
	if stamp == nil {
		return Record{}, fmt.Errorf("line %d has no record", n)
	}
	stamp.Line = n
	return record, nil
}

// New returns the history of records. The first must be the Begin.
func New(records ...Record) (*History, error) {
	if len(records) == 0 || records[0].Begin == nil {
		return nil, errors.New("the first record is not a begin")
	}
	h := &History{Begin: *records[0].Begin}
	records = slices.DeleteFunc(slices.Clone(records), func(r Record) bool { return r.stamp() == nil })
	slices.SortStableFunc(records, func(a, b Record) int { return cmp.Compare(a.stamp().At, b.stamp().At) })
	for _, r := range records {
		h.End = max(h.End, r.stamp().At)
		take(&h.Stages, r.Stage)
		take(&h.Faults, r.Fault)
		take(&h.Truths, r.Truth)
		take(&h.Acts, r.Act)
		take(&h.Calls, r.Call)
		take(&h.Crawls, r.Crawl)
		take(&h.Objects, r.Object)
		take(&h.Gaps, r.Gap)
		take(&h.VMs, r.VMs)
		take(&h.Processes, r.Processes)
		take(&h.Metrics, r.Metrics)
		take(&h.Pressure, r.Pressure)
	}
	h.mergeFaults()
	slices.SortStableFunc(h.Faults, func(a, b Fault) int { return cmp.Compare(a.From, b.From) })
	slices.SortStableFunc(h.Gaps, func(a, b Gap) int { return cmp.Compare(a.From, b.From) })
	return h, nil
}

func take[T any](into *[]T, record *T) {
	if record != nil {
		*into = append(*into, *record)
	}
}

// mergeFaults merges the two records of each fault.
func (h *History) mergeFaults() {
	merged := []Fault{}
	for _, f := range h.Faults {
		i := slices.IndexFunc(merged, func(m Fault) bool { return m.ID == f.ID })
		if i < 0 {
			merged = append(merged, f)
			continue
		}
		f.To = cmp.Or(f.To, merged[i].To)
		merged[i] = f
	}
	for i, f := range merged {
		merged[i].To = cmp.Or(f.To, max(h.End, f.From))
	}
	h.Faults = merged
}

// StageAt returns the window of a stage, which ends where the next one begins.
func (h *History) StageAt(name StageName) (from, to time.Duration, ok bool) {
	i := slices.IndexFunc(h.Stages, func(s Stage) bool { return s.Name == name })
	if i < 0 {
		return 0, 0, false
	}
	to = h.End
	if i+1 < len(h.Stages) {
		to = h.Stages[i+1].At
	}
	return h.Stages[i].At, to, true
}
