package client

import (
	"bytes"
	"encoding/json"
	"fmt"
	"log/slog"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestNothingPrintsSecrets(t *testing.T) {
	l, err := (&api{}).client(t).Acquire(t.Context(), Want{})
	require.NoError(t, err)
	cfg := Config{URL: "http://u:CANARY@discovery", Token: "CANARY"}
	c, err := New(cfg)
	require.NoError(t, err)
	var out bytes.Buffer
	for _, v := range []any{l, c, cfg, struct{ L *Lease }{l}, map[string]any{"lease": l}} {
		for _, verb := range []string{"%v", "%+v", "%#v", "%s", "%d", "%q"} {
			fmt.Fprintf(&out, verb+"\n", v)
		}
		slog.New(slog.NewTextHandler(&out, nil)).Info("x", "value", v)
	}
	text, err := json.Marshal(struct{ L *Lease }{l})
	require.NoError(t, err)
	out.Write(text)
	slog.New(slog.NewJSONHandler(&out, nil)).Info("x", "lease", l, "client", c)
	assert.NotContains(t, out.String(), "CANARY")
	assert.Contains(t, out.String(), "lease ID of proxy crawl/a")
	require.NoError(t, l.Release(t.Context()))
}
