package soaktest

import (
	"fmt"
	"os"
	"runtime"
	"strconv"
	"strings"
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
