package main

import (
	"net/http"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/api/adapter"
	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/internal/program/programtest"
)

// On a laptop there may be no API server: the adapter acts all the same, and
// says what it does without.
func TestWithoutAPIServerItActsAndSaysSo(t *testing.T) {
	w := newWorld(t)
	socket := filepath.Join(t.TempDir(), "s")
	p := programtest.Start(t, run, w.adapterArgs("alone", socket)...)
	p.AwaitReady(t)
	c := adapter.NewClient(socket, 20*time.Second)
	t.Cleanup(c.Close)
	name, req := request(1)
	eventually(t, "it runs", func() bool {
		got, err := c.Put(t.Context(), "gcp-eu", name, req)
		return err == nil && got.State == adapter.StateRunning
	})
	assert.Contains(t, p.String(), "acts without a lease")
	assert.Contains(t, p.String(), "never collects orphans")

	var metrics string
	eventually(t, "its operation was followed to its end", func() bool {
		_, metrics = programtest.Get(t, p.Ops(t)+"/metrics")
		return strings.Contains(metrics, "cloud_instances_made_total{")
	})
	for _, want := range []string{
		`proxy_operator_provider_requests_total{op="insert",provider="gcp-eu",result="ok"} 1`,
		`proxy_operator_cloud_instances_made_total{provider="gcp-eu",reason="new"} 1`,
		`proxy_operator_cloud_instances{failure="",provider="gcp-eu",state="Running"} 1`,
		`proxy_operator_cloud_leader 1`,
	} {
		assert.Contains(t, metrics, want)
	}
	for line := range strings.Lines(metrics) {
		assert.NotContains(t, line, req.UID, "no series per Proxy")
	}
}

// A cloud that does not answer is no reason to take the hooks' Pod out of
// service.
func TestReadinessDoesNotDependOnTheCloud(t *testing.T) {
	socket := filepath.Join(t.TempDir(), "s")
	p := programtest.Start(t, run, "--socket", socket, "--installation", "inst", "--providers-config", providersFile(t, goodProviders),
		"--gcp-endpoint", "http://127.0.0.1:1", "--ops-addr", "127.0.0.1:0")
	p.AwaitReady(t)
	c := adapter.NewClient(socket, 20*time.Second)
	t.Cleanup(c.Close)
	name, req := request(1)
	_, err := c.Put(t.Context(), "gcp-eu", name, req)
	require.ErrorIs(t, err, adapter.ErrNotReady)
	var status *adapter.StatusError
	require.ErrorAs(t, err, &status)
	assert.Equal(t, http.StatusServiceUnavailable, status.Status)
}
