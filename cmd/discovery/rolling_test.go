package main

import (
	"context"
	"io"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/api/v1alpha1"
	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/discovery/store/redis/redistest"
	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/internal/program/programtest"
)

// service spreads clients over replicas as a Kubernetes Service does: each
// connection goes to one of those that are in it when it is opened, and stays.
type service struct {
	mu   sync.Mutex
	urls []*url.URL
	next int
}

func (s *service) set(t *testing.T, replicas ...*programtest.Process) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.urls = nil
	for _, p := range replicas {
		u, err := url.Parse("http://" + p.Address(t, "API listening"))
		require.NoError(t, err)
		s.urls = append(s.urls, u)
	}
}

func (s *service) pick() *url.URL {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.next++
	return s.urls[s.next%len(s.urls)]
}

// client of one crawler. A connection that the server closes properly is
// replaced; a request is never sent twice.
type client struct {
	to        *service
	transport *http.Transport
	server    *url.URL
}

func (c *client) ask(ctx context.Context, method, path, body string) (int, string, error) {
	if c.server == nil {
		c.server = c.to.pick()
	}
	req, err := http.NewRequestWithContext(ctx, method, c.server.String()+path, strings.NewReader(body))
	if err != nil {
		return 0, "", err
	}
	req.GetBody = nil
	req.Header.Set("Authorization", "Bearer "+token)
	req.Header.Set("Content-Type", "application/json")
	resp, err := c.transport.RoundTrip(req)
	if err != nil {
		return 0, "", err
	}
	defer resp.Body.Close()
	_, err = io.Copy(io.Discard, resp.Body)
	if resp.Close {
		c.server = nil // the next connection goes where the Service leads then
	}
	return resp.StatusCode, resp.Header.Get("Location"), err
}

// TestRollingRestartLosesNoRequest restarts two replicas on Redis one after the
// other while clients are busy, some of them waiting for a lease.
func TestRollingRestartLosesNoRequest(t *testing.T) {
	server := redistest.Start(t)
	c := realCluster(t)
	c.secret("login", map[string]string{v1alpha1.LabelCredentials: "true"})
	c.renew(time.Now())
	c.readyProxy("a", "login")
	startReplica := func() *programtest.Process {
		// The drain is longer than a stall of a busy machine: the shutdown cuts off
		// requests that are not answered by then.
		p := programtest.Start(t, run, "--addr", "127.0.0.1:0", "--ops-addr", "127.0.0.1:0", "--drain", "3s", "--token-rate", "0",
			"--kubeconfig", c.kubeconfig, "--namespace", c.namespace, "--system-namespace", c.namespace, "--lease-store", server.URL())
		p.AwaitReady(t)
		return p
	}
	replicas := []*programtest.Process{startReplica(), startReplica()}
	s := &service{}
	s.set(t, replicas...)

	var asked, granted, waited atomic.Int64
	ctx, stop := context.WithCancel(t.Context())
	var clients sync.WaitGroup
	for i := range 16 {
		clients.Go(func() {
			cl := &client{to: s, transport: &http.Transport{}}
			defer cl.transport.CloseIdleConnections()
			for n := 0; ctx.Err() == nil; n++ {
				body := `{"ttlSeconds":60}`
				if (i+n)%4 == 0 {
					body = `{"ttlSeconds":60,"wait":1}`
					waited.Add(1)
				}
				code, lease, err := cl.ask(t.Context(), http.MethodPost, "/v1/leases", body)
				asked.Add(1)
				if !assert.NoError(t, err) || !assert.Contains(t, []int{http.StatusCreated, http.StatusConflict}, code) {
					return
				}
				if code == http.StatusCreated {
					granted.Add(1)
					code, _, err = cl.ask(t.Context(), http.MethodDelete, lease, "")
					if !assert.NoError(t, err) || !assert.Equal(t, http.StatusNoContent, code) {
						return
					}
				}
			}
		})
	}
	busy := func() {
		before := granted.Load()
		require.Eventually(t, func() bool { return granted.Load() > before+200 }, patience, time.Millisecond)
	}
	for i, old := range replicas {
		busy()
		replicas[i] = startReplica()
		s.set(t, replicas...) // and the old one gets no new connections: its preStop hook
		require.NoError(t, old.Stop())
	}
	busy()
	stop()
	clients.Wait()
	t.Logf("%d requests, %d leases, %d that would wait", asked.Load(), granted.Load(), waited.Load())
}
