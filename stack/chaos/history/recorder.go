package history

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"sync"
	"time"

	"k8s.io/utils/clock"
)

// Recorder writes a history. Its methods may be used from many goroutines.
type Recorder struct {
	clock clock.PassiveClock
	start time.Time

	mu     sync.Mutex
	file   *os.File
	closed bool
	err    error
	faults int
}

// Start starts a history in a new file at path, with begin as its first record;
// its Wall is filled in. Offset 0 is now.
func Start(path string, c clock.PassiveClock, begin Begin) (*Recorder, error) {
	file, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return nil, fmt.Errorf("create the history: %w", err)
	}
	r := &Recorder{clock: c, start: c.Now(), file: file}
	begin.Wall = r.start
	r.Add(Record{Begin: &begin})
	return r, r.Err()
}

// Now is the offset that it is.
func (r *Recorder) Now() time.Duration { return r.clock.Since(r.start) }

// Offset of a wall time, such as the system's answers have.
func (r *Recorder) Offset(wall time.Time) time.Duration { return wall.Sub(r.start) }

// Add writes a record. It is on its way to the disk when Add returns, so that
// a campaign that is killed leaves all of it. The record is taken over. A failed
// write is kept for Err and Close: a history with holes proves nothing.
func (r *Recorder) Add(record Record) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if stamp := record.stamp(); stamp != nil && stamp.At == 0 && record.Begin == nil {
		stamp.At = r.Now()
	}
	line, err := json.Marshal(record)
	switch {
	case err != nil:
		r.err = errors.Join(r.err, fmt.Errorf("encode a record: %w", err))
	case r.closed: // stragglers
	case r.err == nil:
		_, r.err = r.file.Write(append(line, '\n'))
	}
}

// Fault records that a fault begins, and returns what ends it. From is now where
// it is zero.
func (r *Recorder) Fault(f Fault) (end func()) {
	r.mu.Lock()
	r.faults++
	f.ID = r.faults
	r.mu.Unlock()
	if f.From == 0 {
		f.From = r.Now()
	}
	begun := f
	r.Add(Record{Fault: &begun})
	return func() {
		over := f
		over.To = r.Now()
		over.At = over.To
		r.Add(Record{Fault: &over})
	}
}

// Err is the first failure to record anything.
func (r *Recorder) Err() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.err
}

// Close ends the history. What is added later is dropped.
func (r *Recorder) Close() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closed {
		return r.err
	}
	r.closed = true
	return errors.Join(r.err, r.file.Close())
}

// stamp of what the record holds, nil of an empty one.
func (r *Record) stamp() *Stamp {
	switch {
	case r.Begin != nil:
		return &r.Begin.Stamp
	case r.Stage != nil:
		return &r.Stage.Stamp
	case r.Fault != nil:
		return &r.Fault.Stamp
	case r.Truth != nil:
		return &r.Truth.Stamp
	case r.Act != nil:
		return &r.Act.Stamp
	case r.Call != nil:
		return &r.Call.Stamp
	case r.Crawl != nil:
		return &r.Crawl.Stamp
	}
	return r.stampSeen()
}

func (r *Record) stampSeen() *Stamp {
	switch {
	case r.Object != nil:
		return &r.Object.Stamp
	case r.Gap != nil:
		return &r.Gap.Stamp
	case r.VMs != nil:
		return &r.VMs.Stamp
	case r.Processes != nil:
		return &r.Processes.Stamp
	case r.Metrics != nil:
		return &r.Metrics.Stamp
	case r.Pressure != nil:
		return &r.Pressure.Stamp
	}
	return nil
}
