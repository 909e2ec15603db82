package main

import (
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/api/v1alpha1"
	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/discovery/store/journal/journaltest"
	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/discovery/store/redis/redistest"
	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/internal/program/programtest"
)

// TestProcessKeepsLeasesInAFile starts a second process on the file of a first
// one that has ended.
func TestProcessKeepsLeasesInAFile(t *testing.T) {
	c := realCluster(t)
	c.secret("login", map[string]string{v1alpha1.LabelCredentials: "true"})
	c.renew(time.Now())
	c.readyProxy("a", "login")
	path := filepath.Join(t.TempDir(), "leases")
	args := []string{"--kubeconfig", c.kubeconfig, "--namespace", c.namespace, "--system-namespace", c.namespace, "--lease-store", "file:" + path}
	var id, banned string
	t.Run("first", func(t *testing.T) {
		r := start(t, args...)
		var grant map[string]any
		require.Eventually(t, func() bool {
			var code int
			code, grant, _ = r.ask(http.MethodPost, "/v1/leases", `{"ttlSeconds":600}`)
			return code == http.StatusCreated
		}, patience, 10*time.Millisecond)
		id = grant["leaseID"].(string)
		code, _, _ := r.ask(http.MethodPost, "/v1/leases/"+id+"/report", `{"result":"banned","target":"banned.example"}`)
		require.Equal(t, http.StatusNoContent, code)
		banned = "banned.example"
		code, text := r.opsGet("/readyz")
		assert.Equal(t, http.StatusOK, code, text)

		err := run(t.Context(), append(args, "--addr", "127.0.0.1:0", "--ops-addr", "127.0.0.1:0"), io.Discard)
		assert.ErrorContains(t, err, "--lease-store: lease store: "+path+" is in use by another process")
	})
	t.Run("second", func(t *testing.T) {
		r := start(t, args...)
		require.Eventually(t, func() bool {
			_, body, _ := r.ask(http.MethodPost, "/v1/leases", `{"target":"`+banned+`"}`)
			return body["inCooldown"] == 1.0
		}, patience, 10*time.Millisecond)
		_, metrics := r.opsGet("/metrics")
		assert.Contains(t, metrics, "proxy_operator_leases_active 1")
		code, _, _ := r.ask(http.MethodPost, "/v1/leases/"+id+"/report", `{"result":"ok"}`)
		assert.Equal(t, http.StatusNoContent, code, "the lease is known")
	})
}

func TestProcessRefusesAFileThatIsNotItsOwn(t *testing.T) {
	path := filepath.Join(t.TempDir(), "diary")
	require.NoError(t, os.WriteFile(path, []byte("Dear diary, today I was nearly overwritten."), 0o600))
	err := run(t.Context(), []string{"--kubeconfig", programtest.DeadKubeconfig(t), "--lease-store", "file:" + path}, io.Discard)
	assert.ErrorContains(t, err, path+" is damaged or not a lease file")
	err = run(t.Context(), []string{"--kubeconfig", programtest.DeadKubeconfig(t), "--lease-store", "file:" + filepath.Join(path, "x")}, io.Discard)
	assert.ErrorContains(t, err, "--lease-store: lease store: ")
}

// TestProcessOnAFullDisk: clients hear that they should come back, nothing is
// granted, and once there is space all goes on by itself.
func TestProcessOnAFullDisk(t *testing.T) {
	disk := journaltest.SmallDisk(t, 1<<18)
	c := realCluster(t)
	c.secret("login", map[string]string{v1alpha1.LabelCredentials: "true"})
	c.renew(time.Now())
	for _, name := range []string{"a", "b", "c", "d"} {
		c.readyProxy(name, "login")
	}
	r := start(t, "--kubeconfig", c.kubeconfig, "--namespace", c.namespace, "--system-namespace", c.namespace, "--lease-store", "file:"+filepath.Join(disk.Path(), "leases"))
	var held []string
	acquire := func() int {
		code, grant, _ := r.ask(http.MethodPost, "/v1/leases", `{"ttlSeconds":600}`)
		if code == http.StatusCreated {
			held = append(held, grant["leaseID"].(string))
		}
		return code
	}
	require.Eventually(t, func() bool { return acquire() == http.StatusCreated }, patience, 10*time.Millisecond)

	require.NoError(t, disk.Fill())
	for range 19 {
		if acquire() != http.StatusCreated {
			break
		}
	}
	for _, ask := range [][3]string{
		{http.MethodPost, "/v1/leases", `{}`},
		{http.MethodGet, "/v1/leases/" + held[0], ""},
		{http.MethodPost, "/v1/leases/" + held[0] + "/renew", `{}`},
		{http.MethodPost, "/v1/leases/" + held[0] + "/report", `{"result":"banned"}`},
		{http.MethodDelete, "/v1/leases/" + held[0], ""},
	} {
		code, problem, header := r.ask(ask[0], ask[1], ask[2])
		assert.Equal(t, http.StatusServiceUnavailable, code, "%s: %v", ask, problem)
		assert.Equal(t, "store_unavailable", problem["error"], ask)
		assert.Equal(t, "5", header.Get("Retry-After"), ask)
	}
	code, text := r.opsGet("/readyz")
	assert.Equal(t, http.StatusServiceUnavailable, code)
	assert.Contains(t, text, "no space left on device; free space on the disk of ")

	require.NoError(t, disk.Free())
	require.Eventually(t, func() bool { code, _ := r.opsGet("/readyz"); return code == http.StatusOK }, patience, 10*time.Millisecond)
	_, metrics := r.opsGet("/metrics")
	assert.Contains(t, metrics, fmt.Sprintf("proxy_operator_leases_active %d\n", len(held)), "what was refused does not count")
	for _, id := range held {
		code, _, _ := r.ask(http.MethodDelete, "/v1/leases/"+id, "")
		assert.Equal(t, http.StatusNoContent, code)
	}
}

// TestReplicasShareLeasesInRedis runs two processes on one Redis, which dies and
// comes back.
func TestReplicasShareLeasesInRedis(t *testing.T) {
	server := redistest.Start(t, "appendonly yes", "appendfsync always", "requirepass CANARY-redis")
	c := realCluster(t)
	c.secret("login", map[string]string{v1alpha1.LabelCredentials: "true"})
	c.renew(time.Now())
	c.readyProxy("a", "login")
	t.Setenv("PX_LEASE_STORE", "unix://:CANARY-redis@"+server.Socket()+"?prefix=blue")
	args := []string{"--kubeconfig", c.kubeconfig, "--namespace", c.namespace, "--system-namespace", c.namespace}
	one, two := start(t, args...), start(t, args...)
	var grant map[string]any
	require.Eventually(t, func() bool {
		var code int
		code, grant, _ = one.ask(http.MethodPost, "/v1/leases", `{"ttlSeconds":600}`)
		return code == http.StatusCreated
	}, patience, 10*time.Millisecond)
	id := grant["leaseID"].(string)
	code, _, _ := two.ask(http.MethodGet, "/v1/leases/"+id, "")
	assert.Equal(t, http.StatusOK, code, "the other replica knows it")

	require.NoError(t, server.Kill())
	code, problem, header := one.ask(http.MethodPost, "/v1/leases", `{}`)
	assert.Equal(t, http.StatusServiceUnavailable, code, problem)
	assert.NotEmpty(t, header.Get("Retry-After"))
	require.Eventually(t, func() bool { code, _ := one.opsGet("/readyz"); return code == http.StatusServiceUnavailable }, patience, 10*time.Millisecond)
	require.NoError(t, server.Start(t.Context()))
	require.Eventually(t, func() bool { code, _ := one.opsGet("/readyz"); return code == http.StatusOK }, patience, 10*time.Millisecond)
	require.Eventually(t, func() bool { code, _ := two.opsGet("/readyz"); return code == http.StatusOK }, patience, 10*time.Millisecond)
	code, _, _ = two.ask(http.MethodDelete, "/v1/leases/"+id, "")
	assert.Equal(t, http.StatusNoContent, code)
	code, _, _ = one.ask(http.MethodGet, "/v1/leases/"+id, "")
	assert.Equal(t, http.StatusNotFound, code)
}
