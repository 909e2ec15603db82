package programtest

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"path/filepath"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/internal/ops"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func opsOnly(ctx context.Context, args []string, out io.Writer) error {
	s := ops.Server{
		Addr: args[0], Registry: prometheus.NewRegistry(), Ready: func() error { return nil },
		Log: slog.New(slog.NewJSONHandler(out, nil)),
	}
	return s.Run(ctx)
}

func TestProcess(t *testing.T) {
	p := Start(t, opsOnly, "127.0.0.1:0")
	p.AwaitReady(t)
	code, body := Get(t, p.Ops(t)+"/livez")
	assert.Equal(t, http.StatusOK, code)
	assert.Equal(t, "ok\n", body)
	require.NoError(t, p.Stop())
	require.NoError(t, p.Stop(), "and again")
}

func TestStopReturnsTheProcessesError(t *testing.T) {
	broken := errors.New("broken")
	p := &Process{stop: func() {}, done: make(chan error, 1)}
	p.done <- broken
	assert.ErrorIs(t, p.Stop(), broken)
}

func TestBuild(t *testing.T) {
	dir := t.TempDir()
	require.NoError(t, Build(dir, "../../../cmd/connectproxy"))
	assert.FileExists(t, filepath.Join(dir, "connectproxy"))
	assert.ErrorContains(t, Build(dir, "../../../cmd/no-such-program"), "no-such-program")
}
