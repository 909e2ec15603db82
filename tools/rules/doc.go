// Package rules tries our alerts and our dashboard with Prometheus's own parser,
// engine and rules: manifests/components/monitoring. It is a Go module of its
// own, so that the programs do not depend on Prometheus. The cases are written in
// promtool's format; promtool itself takes minutes to build.
package rules
