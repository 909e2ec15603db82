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

// History is all that was recorded, by kind, each in the order of At.
type History struct {
	Begin     Begin
	Stages    []Stage
	Faults    []Fault // each once; one that did not end has the history's End as To
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
	// End is the last moment that the history knows of.
	End time.Duration
	// Torn: the last line was cut, as it is when the campaign was killed.
	Torn bool
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

// Read reads a history. A cut last line is left out.
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
		return Record{}, fmt.Errorf("line %d holds no record", n)
	}
	stamp.Line = n
	return record, nil
}

// New makes a history of records, of which the first must be the Begin.
func New(records ...Record) (*History, error) {
	if len(records) == 0 || records[0].Begin == nil {
		return nil, errors.New("the first record is no begin")
	}
	h := &History{}
	for _, record := range records {
		h.add(record)
	}
	h.mergeFaults()
	h.sort()
	return h, nil
}

func (h *History) add(r Record) {
	if stamp := r.stamp(); stamp != nil {
		h.End = max(h.End, stamp.At)
	}
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
	if r.Begin != nil {
		h.Begin = *r.Begin
	}
}

func take[T any](into *[]T, record *T) {
	if record != nil {
		*into = append(*into, *record)
	}
}

// mergeFaults makes one of the two records of each fault.
func (h *History) mergeFaults() {
	byID := map[int]Fault{}
	var order []int
	for _, f := range h.Faults {
		first, known := byID[f.ID]
		if !known {
			order = append(order, f.ID)
		} else if f.To == 0 {
			f.To = first.To
		}
		byID[f.ID] = f
	}
	h.Faults = h.Faults[:0]
	for _, id := range order {
		f := byID[id]
		if f.To == 0 {
			f.To = max(h.End, f.From)
		}
		h.Faults = append(h.Faults, f)
	}
}

func (h *History) sort() {
	byAt(h.Stages, func(r *Stage) time.Duration { return r.At })
	byAt(h.Faults, func(r *Fault) time.Duration { return r.From })
	byAt(h.Truths, func(r *Truth) time.Duration { return r.At })
	byAt(h.Acts, func(r *Act) time.Duration { return r.At })
	byAt(h.Calls, func(r *Call) time.Duration { return r.At })
	byAt(h.Crawls, func(r *Crawl) time.Duration { return r.At })
	byAt(h.Objects, func(r *Object) time.Duration { return r.At })
	byAt(h.Gaps, func(r *Gap) time.Duration { return r.From })
	byAt(h.VMs, func(r *VMs) time.Duration { return r.At })
	byAt(h.Processes, func(r *Processes) time.Duration { return r.At })
	byAt(h.Metrics, func(r *Metrics) time.Duration { return r.At })
	byAt(h.Pressure, func(r *Pressure) time.Duration { return r.At })
}

func byAt[T any](records []T, at func(*T) time.Duration) {
	slices.SortStableFunc(records, func(a, b T) int { return cmp.Compare(at(&a), at(&b)) })
}

// StageAt is the window of the stage of that name: it ends where the next one
// begins. ok is false when the history has none.
func (h *History) StageAt(name StageName) (from, to time.Duration, ok bool) {
	for i, s := range h.Stages {
		if s.Name != name {
			continue
		}
		if i+1 < len(h.Stages) {
			return s.At, h.Stages[i+1].At, true
		}
		return s.At, h.End, true
	}
	return 0, 0, false
}
