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

// Recorder writes a history. Its methods are safe for concurrent use.
type Recorder struct {
	clock clock.PassiveClock
	start time.Time

	mu     sync.Mutex
	file   *os.File
	closed bool
	err    error
	faults int
}

// Start creates a history at path with begin as its first record. Offset 0 is now.
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

// Now is the current offset.
func (r *Recorder) Now() time.Duration { return r.clock.Since(r.start) }

// Offset of a wall time, such as one in a response.
func (r *Recorder) Offset(wall time.Time) time.Duration { return wall.Sub(r.start) }

// Add writes a record before it returns, so that a killed campaign leaves all records.
// It takes over the record. Err and Close return the first failed write: an incomplete
// history proves nothing.
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
	case r.closed: // late records
	case r.err == nil:
		_, r.err = r.file.Write(append(line, '\n'))
	}
}

// Fault records the start of a fault and returns the function that records its end.
// From is now where it is zero.
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

// Err is the first failed write.
func (r *Recorder) Err() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.err
}

// Close ends the history and drops later records.
func (r *Recorder) Close() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closed {
		return r.err
	}
	r.closed = true
	return errors.Join(r.err, r.file.Close())
}
