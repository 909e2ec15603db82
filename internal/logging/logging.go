// Package logging builds the structured logger that all our processes use.
package logging

import (
	"fmt"
	"io"
	"log/slog"

	"k8s.io/klog/v2"
)

// Process is the output of a process as a whole. The logger that New makes for
// it is klog's as well, which client-go logs with: without, its lines would
// stand between ours in a format of their own.
type Process struct{ io.Writer }

// New returns a logger that writes to w. level is debug, info, warn or error;
// format is json or text; anything else is an error that names the flag. With a
// Process it must be called before anything else logs.
func New(w io.Writer, level, format string) (*slog.Logger, error) {
	log, err := newLogger(w, level, format)
	if _, whole := w.(Process); whole && err == nil {
		klog.SetSlogLogger(log)
	}
	return log, err
}

func newLogger(w io.Writer, level, format string) (*slog.Logger, error) {
	var l slog.Level
	if err := l.UnmarshalText([]byte(level)); err != nil {
		return nil, fmt.Errorf("--log-level %q: want debug, info, warn or error", level)
	}
	opts := &slog.HandlerOptions{Level: l}
	switch format {
	case "json":
		return slog.New(slog.NewJSONHandler(w, opts)), nil
	case "text":
		return slog.New(slog.NewTextHandler(w, opts)), nil
	}
	return nil, fmt.Errorf("--log-format %q: want json or text", format)
}
