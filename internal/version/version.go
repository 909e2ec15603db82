// Package version identifies the build of a program. It reads what the Go toolchain
// stamps into a binary that is built in a checkout, so that no build has to pass it in.
package version

import (
	"fmt"
	"runtime"
	"runtime/debug"

	"github.com/prometheus/client_golang/prometheus"
)

// unknown is the value of fields that a binary lacks, as in tests.
const unknown = "unknown"

// Info is the origin of a binary.
type Info struct {
	// Version is a tag such as v1.2.3, or a pseudo-version such as
	// v0.0.0-20261129204115-5d39106aabbc, with +dirty behind it when the
	// checkout had changes that were not committed.
	Version string
	// Revision is the commit.
	Revision string
	// Go is the toolchain's version.
	Go string
}

// Get reads the running binary's own Info.
func Get() Info {
	build, ok := debug.ReadBuildInfo()
	if !ok {
		return Info{Version: unknown, Revision: unknown, Go: runtime.Version()}
	}
	return from(build)
}

func from(build *debug.BuildInfo) Info {
	i := Info{Version: build.Main.Version, Revision: unknown, Go: build.GoVersion}
	if i.Version == "" || i.Version == "(devel)" {
		i.Version = unknown
	}
	for _, s := range build.Settings {
		if s.Key == "vcs.revision" && s.Value != "" {
			i.Revision = s.Value
		}
	}
	return i
}

// String is the output of --version after the program's name.
func (i Info) String() string {
	return fmt.Sprintf("%s (commit %s, %s, %s/%s)", i.Version, i.Revision, i.Go, runtime.GOOS, runtime.GOARCH)
}

// Collector returns the metric proxy_operator_build_info, which is always 1.
func (i Info) Collector() prometheus.Collector {
	return prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name:        "proxy_operator_build_info",
		Help:        "Always 1; its labels say which build this is.",
		ConstLabels: prometheus.Labels{"version": i.Version, "revision": i.Revision, "goversion": i.Go},
	}, func() float64 { return 1 })
}
