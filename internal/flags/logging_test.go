package flags

import (
	"bytes"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestLoggerHonoursLevelAndFormat(t *testing.T) {
	var l Logging
	fs := NewSet("stack", "intro", &bytes.Buffer{})
	l.Register(fs, "warn", "text")
	require.NoError(t, Parse(fs, []string{"--log-level", "error"}))
	var out bytes.Buffer
	log, err := l.Logger(&out)
	require.NoError(t, err)
	log.Warn("hidden")
	log.Error("shown")
	assert.NotContains(t, out.String(), "hidden")
	assert.Contains(t, out.String(), "msg=shown")
}

func TestLoggerJSON(t *testing.T) {
	var out bytes.Buffer
	log, err := (&Logging{LogLevel: "warn", LogFormat: "json"}).Logger(&out)
	require.NoError(t, err)
	log.Info("hidden")
	log.Warn("shown", "proxy", "a")
	assert.NotContains(t, out.String(), "hidden")
	assert.Contains(t, out.String(), `"proxy":"a"`)
}

func TestLoggerRefusesUnknownLevelAndFormat(t *testing.T) {
	_, err := (&Logging{LogLevel: "loud", LogFormat: "json"}).Logger(&bytes.Buffer{})
	assert.ErrorContains(t, err, `--log-level "loud"`)
	_, err = (&Logging{LogLevel: "info", LogFormat: "xml"}).Logger(&bytes.Buffer{})
	assert.ErrorContains(t, err, `--log-format "xml"`)
}
