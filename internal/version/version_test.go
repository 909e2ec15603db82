package version

import (
	"runtime/debug"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestFrom(t *testing.T) {
	commit := []debug.BuildSetting{{Key: "GOOS", Value: "linux"}, {Key: "vcs.revision", Value: "5d39106"}}
	tests := map[string]struct {
		build debug.BuildInfo
		want  Info
	}{
		"tagged":           {debug.BuildInfo{GoVersion: "go1.26.0", Main: debug.Module{Version: "v1.2.3"}, Settings: commit}, Info{"v1.2.3", "5d39106", "go1.26.0"}},
		"changed":          {debug.BuildInfo{GoVersion: "go1.26.0", Main: debug.Module{Version: "v1.2.3+dirty"}, Settings: commit}, Info{"v1.2.3+dirty", "5d39106", "go1.26.0"}},
		"outside of a git": {debug.BuildInfo{GoVersion: "go1.26.0", Main: debug.Module{Version: "(devel)"}}, Info{"unknown", "unknown", "go1.26.0"}},
		"a test":           {debug.BuildInfo{GoVersion: "go1.26.0"}, Info{"unknown", "unknown", "go1.26.0"}},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) { assert.Equal(t, tt.want, from(&tt.build)) })
	}
}

func TestString(t *testing.T) {
	assert.Regexp(t, `^v1\.2\.3 \(commit abc, go1\.26\.0, [a-z0-9]+/[a-z0-9]+\)$`, Info{"v1.2.3", "abc", "go1.26.0"}.String())
	assert.NotContains(t, Get().String(), "()")
}

func TestCollector(t *testing.T) {
	reg := prometheus.NewRegistry()
	require.NoError(t, reg.Register(Info{"v1.2.3", "abc", "go1.26.0"}.Collector()))
	assert.NoError(t, testutil.GatherAndCompare(reg, strings.NewReader(`
# HELP proxy_operator_build_info Always 1; its labels say which build this is.
# TYPE proxy_operator_build_info gauge
proxy_operator_build_info{goversion="go1.26.0",revision="abc",version="v1.2.3"} 1
`)))
}
