package node

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/internal/program/programtest"
	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/stack/controlplane/controlplanetest"
)

// env is what the tests of this package share.
var env struct {
	controlPlane controlplanetest.Shared
	dir          string // for programs
}

func TestMain(m *testing.M) {
	var err error
	if env.dir, err = os.MkdirTemp("", "node-test-*"); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	code := m.Run()
	if err := errors.Join(env.controlPlane.Stop(), os.RemoveAll(env.dir), goleak.Find()); err != nil {
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	os.Exit(code)
}

// scripted is a launcher whose program does what the "configuration", a shell
// script, says.
func scripted(t *testing.T) *Launcher {
	t.Helper()
	path := filepath.Join(t.TempDir(), "program")
	require.NoError(t, os.WriteFile(path, []byte("#!/bin/sh\n. \"$5\"\n"), 0o755))
	return &Launcher{Name: "script", Path: path}
}

// builtConnectProxy returns the built-in proxy's program.
func builtConnectProxy(t *testing.T) string {
	t.Helper()
	require.NoError(t, programtest.Build(env.dir, "../../cmd/connectproxy"))
	return filepath.Join(env.dir, "connectproxy")
}

// within waits for a condition that other processes bring about.
func within(t *testing.T, what string, condition func() bool) {
	t.Helper()
	require.Eventually(t, condition, 30*time.Second, 10*time.Millisecond, what)
}

// background runs f until the test ends and then waits for it.
func background(t *testing.T, f func(context.Context)) context.CancelFunc {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		f(ctx)
	}()
	stop := func() {
		cancel()
		<-done
	}
	t.Cleanup(stop)
	return stop
}
