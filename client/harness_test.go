package client

import (
	"bufio"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// api is a discovery with scripted answers and without a network, for synctest.
type api struct {
	mu       sync.Mutex
	acquire  []reply // one after the other; a grant when they are used up
	renew    func() reply
	back     time.Time // until then it is away
	proxyURL string
	ttl      time.Duration

	// onWait answers an acquire that may wait; false: with a grant.
	onWait func(wait time.Duration) (reply, bool)

	// fleet are names of proxies. An acquire gets the first that it does not
	// exclude; its name is the ID of the lease. Empty: always the proxy a, and the lease ID.
	fleet []string

	keys, calls, reports []string
	waits                []int64
}

type reply struct {
	status     int // 0: no answer
	retryAfter string
	body       string
}

func (a *api) RoundTrip(r *http.Request) (*http.Response, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.calls = append(a.calls, r.Method+" "+r.URL.Path)
	res := reply{status: http.StatusNoContent}
	switch {
	case time.Now().Before(a.back):
		res.status = 0
	case r.Method == http.MethodPost && r.URL.Path == "/v1/leases":
		res = a.onAcquire(r)
	case strings.HasSuffix(r.URL.Path, "/report"):
		text, _ := io.ReadAll(r.Body)
		a.reports = append(a.reports, string(text))
		if len(a.fleet) > 0 {
			a.reports[len(a.reports)-1] = strings.Split(r.URL.Path, "/")[3] + " " + string(text)
		}
	case strings.HasSuffix(r.URL.Path, "/renew"):
		res = reply{status: http.StatusOK, body: a.grant()}
		if a.renew != nil {
			res = a.renew()
		}
	}
	if res.status == 0 {
		return nil, errors.New("connection reset")
	}
	h := http.Header{"Date": {time.Now().UTC().Format(http.TimeFormat)}}
	if res.retryAfter != "" {
		h.Set("Retry-After", res.retryAfter)
	}
	return &http.Response{StatusCode: res.status, Header: h, Body: io.NopCloser(strings.NewReader(res.body)), Request: r}, nil
}

// renewFrom answers renewals with away before that time.
func (a *api) renewFrom(back time.Time, away reply) {
	a.renew = func() reply {
		if time.Now().Before(back) {
			return away
		}
		return reply{status: http.StatusOK, body: a.grant()}
	}
}

func (a *api) onAcquire(r *http.Request) reply {
	var body acquireBody
	if err := json.NewDecoder(r.Body).Decode(&body); err != nil {
		return reply{status: http.StatusBadRequest}
	}
	a.keys, a.waits = append(a.keys, r.Header.Get("Idempotency-Key")), append(a.waits, body.Wait)
	a.ttl = time.Duration(body.TTLSeconds) * time.Second
	if a.onWait != nil {
		if answer, refused := a.onWait(time.Duration(body.Wait) * time.Second); refused {
			return answer
		}
	}
	if len(a.fleet) > 0 {
		return a.choose(body.Exclude)
	}
	if len(a.acquire) == 0 {
		return reply{status: http.StatusCreated, body: a.grant()}
	}
	next := a.acquire[0]
	a.acquire = a.acquire[1:]
	return next
}

func (a *api) grant() string {
	at := a.proxyURL
	if at == "" {
		at = "http://u:CANARY@127.0.0.1:1"
	}
	return fmt.Sprintf(`{"leaseID":"ID","proxy":{"name":"a","namespace":"crawl"},"proxyURL":%q,"expiresAt":%q,"ttlSeconds":%d,"target":"","fencingToken":7}`,
		at, time.Now().Add(a.ttl).UTC().Format(time.RFC3339Nano), int(a.ttl/time.Second))
}

func (a *api) choose(exclude []string) reply {
	for _, name := range a.fleet {
		if !slices.Contains(exclude, "crawl/"+name) {
			return reply{status: http.StatusCreated, body: strings.NewReplacer(`"ID"`, strconv.Quote(name), `"a"`, strconv.Quote(name)).Replace(a.grant())}
		}
	}
	return reply{status: http.StatusConflict, body: `{"error":"no_match","excluded":1}`}
}

func (a *api) count(call string) (n int) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, c := range a.calls {
		if c == call {
			n++
		}
	}
	return n
}

func (a *api) client(t *testing.T) *Client {
	t.Helper()
	c, err := New(Config{URL: "http://discovery.invalid/", Token: "CANARY-token", HTTPClient: &http.Client{Transport: a}, Transport: &http.Transport{}})
	require.NoError(t, err)
	return c
}

// serveSite serves a site over TLS, and returns its address and a template for transports
// that trust it under every name.
func serveSite(t *testing.T, handler http.HandlerFunc) (string, *http.Transport) {
	t.Helper()
	s := httptest.NewUnstartedServer(handler)
	s.Config.ErrorLog = log.New(io.Discard, "", 0)
	s.StartTLS()
	t.Cleanup(s.Close)
	pool := x509.NewCertPool()
	pool.AddCert(s.Certificate())
	return s.Listener.Addr().String(), &http.Transport{TLSClientConfig: &tls.Config{RootCAs: pool, ServerName: "example.com"}}
}

// serveProxy serves a proxy, which closes each connection after the behaviour.
func serveProxy(t *testing.T, behaviour func(net.Conn, *http.Request)) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	var conns sync.WaitGroup
	t.Cleanup(func() {
		_ = l.Close()
		conns.Wait()
	})
	conns.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			conns.Go(func() {
				defer c.Close()
				req, err := http.ReadRequest(bufio.NewReader(c))
				if err == nil {
					behaviour(c, req)
				}
			})
		}
	})
	return l.Addr().String()
}

func answering(text string) func(net.Conn, *http.Request) {
	return func(c net.Conn, _ *http.Request) { _, _ = io.WriteString(c, text) }
}

// forwardTo opens every tunnel to one address.
func forwardTo(site string) func(net.Conn, *http.Request) {
	return func(c net.Conn, _ *http.Request) {
		up, err := net.Dial("tcp", site)
		if err != nil {
			return
		}
		defer up.Close()
		_, _ = io.WriteString(c, "HTTP/1.1 200 OK\r\n\r\n")
		go func() {
			_, _ = io.Copy(up, c)
			_ = up.Close()
		}()
		_, _ = io.Copy(c, up)
	}
}
