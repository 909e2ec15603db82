package process

import (
	"fmt"
	"io"
	"os"
	"strings"
)

// tailLines and tailBytes bound how much of a log goes into an error.
const (
	tailLines = 10
	tailBytes = 4 << 10
)

// ExitError is returned for a child that did not exit with status 0.
type ExitError struct {
	// Name of the command.
	Name string
	// PID it had.
	PID int
	// LogFile that holds its output.
	LogFile string
	// Tail is the end of its output there, "" without output.
	Tail string
	// Cause is the *exec.ExitError with the exit status or signal.
	Cause error
}

// Error describes the exit and the end of the log.
func (e *ExitError) Error() string {
	head := fmt.Sprintf("%s (pid %d) ended with %v; it wrote to %s", e.Name, e.PID, e.Cause, e.LogFile)
	if e.Tail == "" {
		return head + " nothing"
	}
	return head + ", at the end:\n" + e.Tail
}

// Unwrap returns the cause.
func (e *ExitError) Unwrap() error { return e.Cause }

// logFile is the part of a log that one child wrote: from offset on.
type logFile struct {
	path   string
	offset int64
}

// tail returns the last lines, "" also when the file cannot be read: it is only part of
// another message.
func (l logFile) tail() string {
	f, err := os.Open(l.path)
	if err != nil {
		return ""
	}
	defer f.Close()
	from := l.offset
	if end, err := f.Seek(0, io.SeekEnd); err == nil {
		from = max(from, end-tailBytes)
	}
	b, err := io.ReadAll(io.NewSectionReader(f, from, tailBytes))
	if err != nil {
		return ""
	}
	return lastLines(string(b))
}

func lastLines(s string) string {
	lines := strings.Split(strings.TrimRight(s, "\n"), "\n")
	return strings.Join(lines[max(0, len(lines)-tailLines):], "\n")
}
