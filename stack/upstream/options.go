// Package upstream runs the real Metacontroller, from a binary built elsewhere, in place of its stand-in: on the local
// stack and in tests.
package upstream

import (
	"cmp"
	"fmt"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
)

// ProgramEnv names the environment variable with the path of the real
// Metacontroller's binary. Where it is empty the stand-in runs, and tests of
// the real one are skipped.
const ProgramEnv = "METACONTROLLER"

// Name is the program's name in logs and errors.
const Name = "metacontroller"

// Strategy is how Metacontroller writes children. It is one for the whole
// process, and hooks must do under both.
type Strategy string

const (
	// DynamicApply merges on the client's side, with an annotation that contains what was applied.
	// It is Metacontroller's default.
	DynamicApply    Strategy = "dynamic-apply"
	ServerSideApply Strategy = "server-side-apply" // leaves the merging to the API server
)

// Strategies are all that there are.
func Strategies() []Strategy { return []Strategy{DynamicApply, ServerSideApply} }

// ParseStrategy returns the strategy of that name; an empty one is the default.
// The error lists the names.
func ParseStrategy(name string) (Strategy, error) {
	if name == "" {
		return DynamicApply, nil
	}
	if s := Strategy(name); slices.Contains(Strategies(), s) {
		return s, nil
	}
	return "", fmt.Errorf("%q: want %s or %s", name, DynamicApply, ServerSideApply)
}

// Options are the flags of the program. The other flags keep their defaults, which suit an API
// server on the same machine without other users.
type Options struct {
	Kubeconfig string   // the path of one with all rights
	Strategy   Strategy // of writing children; empty is the default
	// MetricsAddr and HealthAddr are where /metrics and /readyz are served;
	// empty serves them not at all.
	MetricsAddr, HealthAddr string
	// Workers are how many parents are synced at once; 0 means 20, as in our
	// install.
	Workers int
}

const (
	defaultWorkers = 20
	qps            = 1000 // no limit: at the default of 5 requests a second a machine idles while parents wait
	// logLevel 4 names each object that is synced; 5 prints patches, and 6
	// whole hook requests, Secrets among them.
	logLevel = 4
)

// Args is the command line. Leader election is off, because there is only one instance.
func (o Options) Args() []string {
	return []string{
		"--kubeconfig=" + o.Kubeconfig,
		"--apply-strategy=" + string(cmp.Or(o.Strategy, DynamicApply)),
		"--workers=" + strconv.Itoa(cmp.Or(o.Workers, defaultWorkers)),
		"--client-go-qps=" + strconv.Itoa(qps),
		"--client-go-burst=" + strconv.Itoa(2*qps),
		"--leader-election=false",
		"--discovery-interval=5s",
		"--metrics-address=" + cmp.Or(o.MetricsAddr, "0"),
		"--health-probe-bind-address=" + cmp.Or(o.HealthAddr, "0"),
		"--zap-log-level=" + strconv.Itoa(logLevel),
		"--zap-time-encoding=rfc3339nano",
	}
}

// Find returns the absolute path of program, which is a path or the name of one
// in PATH.
func Find(program string) (string, error) {
	path, err := exec.LookPath(program)
	if err != nil {
		return "", fmt.Errorf("the real Metacontroller: %w; name its binary, or name none to run the stand-in", err)
	}
	if path, err = filepath.Abs(path); err != nil {
		return "", fmt.Errorf("the real Metacontroller: %w", err)
	}
	return path, nil
}
