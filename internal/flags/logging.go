package flags

import (
	"fmt"
	"io"
	"log/slog"

	flag "github.com/spf13/pflag"
	"k8s.io/klog/v2"
)

// Logging are the flags about logs.
type Logging struct {
	// LogLevel is debug, info, warn or error.
	LogLevel string
	// LogFormat is json or text.
	LogFormat string
}

// Register declares the flags on fs with their defaults.
func (l *Logging) Register(fs *flag.FlagSet, level, format string) {
	fs.StringVar(&l.LogLevel, "log-level", level, "lowest `level` that is logged: debug, info, warn or error")
	fs.StringVar(&l.LogFormat, "log-format", format, "log `format`: json or text")
}

// Validate returns Logger's error.
func (l *Logging) Validate() error {
	_, err := l.Logger(io.Discard)
	return err
}

// ProcessLog is the output of a whole process. The logger for it also becomes klog's,
// which client-go logs with: its lines would otherwise have another format.
type ProcessLog struct{ io.Writer }

// Logger returns a logger with the level and the format of the flags, or an error that
// names the flag with a bad value. With a ProcessLog it must be called before anything
// logs.
func (l *Logging) Logger(w io.Writer) (*slog.Logger, error) {
	var level slog.Level
	if err := level.UnmarshalText([]byte(l.LogLevel)); err != nil {
		return nil, fmt.Errorf("--log-level %q: want debug, info, warn or error", l.LogLevel)
	}
	opts := &slog.HandlerOptions{Level: level}
	var handler slog.Handler
	switch l.LogFormat {
	case "json":
		handler = slog.NewJSONHandler(w, opts)
	case "text":
		handler = slog.NewTextHandler(w, opts)
	default:
		return nil, fmt.Errorf("--log-format %q: want json or text", l.LogFormat)
	}
	log := slog.New(handler)
	if _, whole := w.(ProcessLog); whole {
		klog.SetSlogLogger(log)
	}
	return log, nil
}
