package logging

import (
	"bytes"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestNewHonoursLevelAndFormat(t *testing.T) {
	var out bytes.Buffer
	log, err := New(&out, "warn", "json")
	require.NoError(t, err)
	log.Info("hidden")
	log.Warn("shown", "proxy", "a")
	assert.NotContains(t, out.String(), "hidden")
	assert.Contains(t, out.String(), `"proxy":"a"`)
}

func TestNewRefusesUnknownLevelAndFormat(t *testing.T) {
	_, err := New(&bytes.Buffer{}, "loud", "json")
	assert.ErrorContains(t, err, `--log-level "loud"`)
	_, err = New(&bytes.Buffer{}, "info", "xml")
	assert.ErrorContains(t, err, `--log-format "xml"`)
}
