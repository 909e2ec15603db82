package api

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	clocktesting "k8s.io/utils/clock/testing"

	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/api/v1alpha1"
	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/discovery/access"
	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/discovery/fleet"
	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/discovery/lease"
	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/discovery/store/memory"
	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/internal/credentials"
	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/internal/httpapi"
	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/internal/program/programtest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const (
	testToken  = "CANARY-token-5f2c"
	testWindow = 10 * time.Minute
)

var testStart = time.Date(2026, 11, 1, 12, 0, 0, 0, time.UTC)

// fakeFleet is a Fleet that tests set.
type fakeFleet struct {
	clock interface{ Now() time.Time }

	mu       sync.Mutex
	proxies  []*fleet.Proxy
	renewals []fleet.Renewal
	err      error
	changed  lease.Signal
}

func (f *fakeFleet) Changed() <-chan struct{} { return f.changed.C() }

func (f *fakeFleet) Snapshot() (fleet.Snapshot, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.err != nil {
		return fleet.Snapshot{}, f.err
	}
	return fleet.Snapshot{Proxies: f.proxies, Freshness: fleet.NewFreshness(f.renewals, f.clock.Now(), 24*time.Hour)}, nil
}

// set takes the proxies in any order.
func (f *fakeFleet) set(proxies ...*fleet.Proxy) {
	f.mu.Lock()
	defer f.mu.Unlock()
	defer f.changed.Broadcast()
	f.proxies = nil
	for _, p := range proxies {
		i := 0
		for i < len(f.proxies) && f.proxies[i].Candidate.Proxy < p.Candidate.Proxy {
			i++
		}
		f.proxies = append(f.proxies[:i], append([]*fleet.Proxy{p}, f.proxies[i:]...)...)
	}
}

func (f *fakeFleet) fail(err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	defer f.changed.Broadcast()
	f.err = err
}

func (f *fakeFleet) renew(renewals ...fleet.Renewal) {
	f.mu.Lock()
	defer f.mu.Unlock()
	defer f.changed.Broadcast()
	f.renewals = renewals
}

// aProxy is leasable, unless change modifies it.
func aProxy(name string, change ...func(*fleet.Proxy)) *fleet.Proxy {
	p := &fleet.Proxy{
		Candidate: lease.Candidate{
			Instance:      lease.Instance{ProxyUID: "uid-" + name, ID: "instance-" + name},
			Proxy:         "crawl/" + name,
			MaxLeases:     1,
			LatencyMillis: 20,
			Scheme:        string(v1alpha1.SchemeHTTP),
		},
		Namespace:  "crawl",
		Name:       name,
		Attributes: map[string]string{"geo": "eu"},
		Phase:      v1alpha1.PhaseReady,
		Healthy:    true,
		Reason:     "ProbeSucceeded",
		Host:       "10.0.0.7",
		Port:       3128,
		Generation: 1, ObservedGeneration: 1,
	}
	for _, c := range change {
		c(p)
	}
	return p
}

func withMaxLeases(n int) func(*fleet.Proxy) { return func(p *fleet.Proxy) { p.MaxLeases = n } }
func withAttr(k, v string) func(*fleet.Proxy) {
	return func(p *fleet.Proxy) { p.Attributes = map[string]string{k: v} }
}
func withSecret(name string) func(*fleet.Proxy) {
	return func(p *fleet.Proxy) { p.CredentialsSecret = name }
}
func inPhase(phase v1alpha1.Phase) func(*fleet.Proxy) {
	return func(p *fleet.Proxy) { p.Phase, p.Healthy = phase, false }
}

// fakeSecrets is a CredentialsReader.
type fakeSecrets struct {
	mu    sync.Mutex
	reads []string
	read  func(ctx context.Context, key string) (credentials.Credentials, error)
}

func (f *fakeSecrets) Read(ctx context.Context, namespace, name string) (credentials.Credentials, error) {
	key := namespace + "/" + name
	f.mu.Lock()
	f.reads = append(f.reads, key)
	read := f.read
	f.mu.Unlock()
	if read == nil {
		return credentials.Credentials{}, fmt.Errorf("secret %s does not exist: %w", key, credentials.ErrRefused)
	}
	return read(ctx, key)
}

// api is a server on a real port with fakes around it.
type api struct {
	*testing.T
	url     string
	client  *http.Client
	clock   *clocktesting.FakeClock
	fleet   *fakeFleet
	store   lease.Store
	secrets *fakeSecrets
	reg     *prometheus.Registry
	logs    *programtest.Output
	server  *Server
}

// newAPI starts a server for the test. configure may change its configuration.
func newAPI(t *testing.T, configure ...func(*Config)) *api {
	t.Helper()
	clk := clocktesting.NewFakeClock(testStart)
	a := &api{
		T: t, clock: clk, reg: prometheus.NewRegistry(), secrets: &fakeSecrets{}, logs: &programtest.Output{},
		fleet: &fakeFleet{clock: clk, renewals: []fleet.Renewal{{Shard: v1alpha1.Shard{Index: 0, Count: 1}, At: testStart}}},
	}
	log := slog.New(slog.NewJSONHandler(a.logs, &slog.HandlerOptions{Level: slog.LevelDebug}))
	cfg := Config{
		Fleet: a.fleet, Store: memory.New(clk, testWindow), Credentials: a.secrets, Tokens: singleToken(t),
		MaxLeaseTTL: time.Hour, Clock: clk, Metrics: NewMetrics(a.reg), Log: log,
	}
	for _, c := range configure {
		c(&cfg)
	}
	a.store = cfg.Store
	s, err := New(cfg)
	require.NoError(t, err)
	a.server = s
	a.reg.MustRegister(NewCollector(cfg.Fleet, cfg.Store, log))
	a.serve(s.Handler(), log)
	return a
}

// singleToken knows testToken alone.
func singleToken(t *testing.T) *access.Tokens {
	t.Helper()
	tokens, err := access.Single(testToken, 0)
	require.NoError(t, err)
	return tokens
}

func (a *api) serve(h http.Handler, log *slog.Logger) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(a, err)
	a.url = "http://" + ln.Addr().String()
	transport := &http.Transport{}
	a.client = &http.Client{Transport: transport}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- httpapi.Run(ctx, httpapi.NewServer(h, log), ln) }()
	a.Cleanup(func() {
		transport.CloseIdleConnections()
		cancel()
		assert.NoError(a, <-done)
	})
}

// answer is what came back.
type answer struct {
	t      *testing.T
	status int
	header http.Header
	body   string
}

// send sends a request with the token. header has pairs of name and value; an empty
// value removes the header.
func (a *api) send(method, path, body string, header ...string) answer {
	a.Helper()
	req, err := http.NewRequestWithContext(a.Context(), method, a.url+path, strings.NewReader(body))
	require.NoError(a, err)
	req.Header.Set("Authorization", "Bearer "+testToken)
	if body != "" {
		req.Header.Set("Content-Type", "application/json")
	}
	for i := 0; i < len(header); i += 2 {
		req.Header.Del(header[i])
		if header[i+1] != "" {
			req.Header.Set(header[i], header[i+1])
		}
	}
	resp, err := a.client.Do(req)
	require.NoError(a, err)
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	require.NoError(a, err)
	res := answer{t: a.T, status: resp.StatusCode, header: resp.Header, body: string(b)}
	theContract(a.T).check(a.T, method, path, res)
	return res
}

func (a *api) get(path string) answer        { a.Helper(); return a.send(http.MethodGet, path, "") }
func (a *api) post(path, body string) answer { a.Helper(); return a.send(http.MethodPost, path, body) }
func (a *api) delete(path string) answer     { a.Helper(); return a.send(http.MethodDelete, path, "") }
func (a *api) report(id, body string) answer {
	a.Helper()
	return a.post("/v1/leases/"+id+"/report", body)
}

// lease wants a grant.
func (a *api) lease(body string) grantBody {
	a.Helper()
	res := a.post("/v1/leases", body)
	require.Equal(a, http.StatusCreated, res.status, res.body)
	var g grantBody
	res.into(&g)
	return g
}

// list wants the list.
func (a *api) list(query string) listBody {
	a.Helper()
	res := a.get("/v1/proxies" + query)
	require.Equal(a, http.StatusOK, res.status, res.body)
	var l listBody
	res.into(&l)
	require.Len(a, l.Proxies, l.Count)
	return l
}

// into decodes the body, in which there must be nothing unexpected.
func (r answer) into(v any) {
	r.t.Helper()
	dec := json.NewDecoder(strings.NewReader(r.body))
	dec.DisallowUnknownFields()
	require.NoError(r.t, dec.Decode(v), r.body)
}

// problemMembers is problem with its counts in a form that can be decoded.
type problemMembers struct {
	Type              string
	Title             string
	Status            int
	Detail            string
	Instance          string
	Error             code
	Message           string
	Reason            lease.EndReason
	RetryAfterSeconds int
	noMatchCounts
}

// problem wants an error of this kind, complete in every respect.
func (r answer) problem(status int, c code) problemMembers {
	r.t.Helper()
	require.Equal(r.t, status, r.status, r.body)
	assert.Equal(r.t, "application/problem+json", r.header.Get("Content-Type"))
	assert.Equal(r.t, "no-store", r.header.Get("Cache-Control"))
	var p problemMembers
	r.into(&p)
	assert.Equal(r.t, c, p.Error)
	assert.Equal(r.t, "tag:crawl.example.com,2026:problem:"+string(c), p.Type)
	assert.Equal(r.t, status, p.Status)
	assert.NotEmpty(r.t, p.Title)
	assert.NotEmpty(r.t, p.Detail)
	assert.Equal(r.t, p.Detail, p.Message)
	assert.Equal(r.t, r.header.Get("X-Request-Id"), p.Instance)
	assert.NotEmpty(r.t, p.Instance)
	retry := r.header.Get("Retry-After")
	if p.RetryAfterSeconds > 0 {
		assert.Equal(r.t, fmt.Sprint(p.RetryAfterSeconds), retry)
	} else {
		assert.Empty(r.t, retry)
	}
	assert.Equal(r.t, status == http.StatusConflict, strings.Contains(r.body, "considered"), "counts belong to no_match alone")
	return p
}

// refused wants a 409 whose counts add up.
func (a *api) refused(body string) problemMembers {
	a.Helper()
	p := a.post("/v1/leases", body).problem(http.StatusConflict, codeNoMatch)
	c := p.noMatchCounts
	assert.Equal(a, c.Considered, c.AtCapacity+c.InCooldown+c.Unhealthy+c.Stale+c.NotReady+c.Disabled+c.Excluded+c.OtherScheme, "the counts add up")
	return p
}
