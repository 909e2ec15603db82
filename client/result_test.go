package client

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"strconv"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// testCase is a case of cases.json, the table of all clients.
type testCase struct {
	Name       string `json:"name"`
	At         string `json:"at"`
	Via        string `json:"via"`
	Is         any    `json:"is"` // a string, or a status
	RetryAfter int    `json:"retryAfterSeconds"`

	Report      *Result `json:"report"`
	Target      *string `json:"target"`
	ChangeProxy bool    `json:"changeProxy"`
	Retry       bool    `json:"retry"`
}

func readCases(t *testing.T) []testCase {
	t.Helper()
	text, err := os.ReadFile("cases.json")
	require.NoError(t, err)
	var table struct {
		Cases []testCase `json:"cases"`
	}
	require.NoError(t, json.Unmarshal(text, &table))
	require.Greater(t, len(table.Cases), 25)
	return table.Cases
}

// Each case of the table is produced by a proxy and a site that behave so.
func TestJudgeFollowsTheTable(t *testing.T) {
	for _, test := range readCases(t) {
		t.Run(test.Name, func(t *testing.T) {
			t.Parallel()
			resp, err := arrange(t, test)
			if resp != nil {
				defer resp.Body.Close()
			}
			got := Judge(resp, err)
			want := Outcome{ChangeProxy: test.ChangeProxy, Retry: test.Retry}
			if test.Report != nil {
				want.Report.Result = *test.Report
			}
			if test.Target != nil {
				want.Report.Target = "site.example"
			}
			want.Report.RetryAfter = time.Duration(test.RetryAfter) * time.Second
			assert.Equal(t, want, got, "%v", err)
		})
	}
}

// arrange makes the request of a case through a lease.
func arrange(t *testing.T, test testCase) (*http.Response, error) {
	t.Helper()
	var l *Lease
	site, trusting := serveSite(t, func(w http.ResponseWriter, r *http.Request) {
		switch status, isStatus := test.Is.(float64); {
		case isStatus:
			if test.RetryAfter > 0 {
				w.Header().Set("Retry-After", strconv.Itoa(test.RetryAfter))
			}
			w.WriteHeader(int(status))
		case test.Is == "lease_ended":
			_ = l.Release(t.Context())
		case test.Is == "timeout":
			<-r.Context().Done()
		case test.Is == "closed":
			panic(http.ErrAbortHandler)
		}
	})
	a, address := &api{}, "https://site.example/"
	a.proxyURL = "http://u:CANARY@" + serveProxy(t, behaviour(test, site))
	c := a.client(t)
	c.transport = trusting
	if test.Is == "untrusted" {
		c.transport = &http.Transport{}
		if test.At == "dial" {
			a.proxyURL = "https://u:CANARY@" + site // any TLS server
		}
	}
	if test.Via == "plain" {
		address = "http://site.example/"
	}
	l, err := c.Acquire(t.Context(), Want{})
	require.NoError(t, err)
	t.Cleanup(func() { _ = l.Release(context.WithoutCancel(t.Context())) })
	failDial(l, test)
	if test.Is == "timeout" {
		l.HTTPClient().Timeout = 200 * time.Millisecond
	}
	return l.HTTPClient().Get(address)
}

// failDial makes the dial fail as the case wants it.
func failDial(l *Lease, test testCase) {
	if test.At != "dial" {
		return
	}
	d := &l.tunnels.dialer
	fail := func(errno syscall.Errno) {
		d.Control = func(string, string, syscall.RawConn) error { return errno }
	}
	switch test.Is {
	case "timeout":
		d.Timeout = time.Nanosecond
	case "unreachable":
		fail(syscall.ENETUNREACH)
	case "refused":
		fail(syscall.ECONNREFUSED)
	case "unresolved":
		d.Control = func(string, string, syscall.RawConn) error {
			return &net.DNSError{Err: "no such host", IsNotFound: true}
		}
	}
}

// behaviour is that of the proxy in a case.
func behaviour(test testCase, site string) func(net.Conn, *http.Request) {
	status, isStatus := test.Is.(float64)
	switch {
	case test.At == "connect" && isStatus, test.Via == "plain":
		return answering(fmt.Sprintf("HTTP/1.1 %d X\r\nContent-Length: 0\r\n\r\n", int(status)))
	case test.At != "connect":
		return forwardTo(site)
	case test.Is == "timeout":
		return func(c net.Conn, _ *http.Request) { _, _ = io.Copy(io.Discard, c) }
	case test.Is == "closed":
		return func(net.Conn, *http.Request) {}
	}
	return answering("SSH-2.0-OpenSSH_9.2\r\n")
}

// Errors of other transports state less, and never put a proxy to rest for what may be
// the site's doing.
func TestJudgeOfOtherTransports(t *testing.T) {
	for _, test := range []struct {
		err  error
		want Outcome
	}{
		{&net.OpError{Op: "proxyconnect", Err: errors.New("refused")}, ofProxy(ConnectError)},
		{&net.OpError{Op: "proxyconnect", Err: os.ErrDeadlineExceeded}, ofProxy(ProxyTimeout)},
		{&url.Error{Op: "Get", URL: "https://a.example/x", Err: os.ErrDeadlineExceeded}, Outcome{Report{Result: TargetTimeout, Target: "a.example"}, true, true}},
		{errors.New("Proxy Authentication Required"), ofProxy(ConnectError)},
		{&url.Error{Op: "Get", URL: "https://a.example/x", Err: errors.New("Proxy Authentication Required")}, ofProxy(ConnectError)},
		{&url.Error{Op: "Get", URL: "https://a.example/?q=proxy: dial: x", Err: errors.New("Bad Gateway")}, Outcome{ChangeProxy: true, Retry: true}},
		{io.EOF, Outcome{ChangeProxy: true, Retry: true}},
		{&net.OpError{Op: "read", Err: syscall.ECONNRESET}, Outcome{ChangeProxy: true, Retry: true}},
		{fmt.Errorf("x: %w", ErrLost), Outcome{ChangeProxy: true, Retry: true}},
		{context.Canceled, Outcome{}},
	} {
		assert.Equal(t, test.want, Judge(nil, test.err), test.err.Error())
	}
	assert.Equal(t, Outcome{Report: Report{Result: OK}}, Judge(&http.Response{StatusCode: http.StatusOK}, nil), "a response without its request")
}

// What a site does wrong by itself is not held against the proxy.
func TestJudgeOfTheSitesOwnErrors(t *testing.T) {
	site, trusting := serveSite(t, func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/loop":
			http.Redirect(w, r, "/loop", http.StatusFound)
		case "/bad-location":
			w.Header().Set("Location", "https://%zz/proxy: dial: x")
			w.WriteHeader(http.StatusFound)
		case "/ftp":
			http.Redirect(w, r, "ftp://site.example/", http.StatusFound)
		case "/gzip":
			w.Header().Set("Content-Encoding", "gzip")
			_, _ = io.WriteString(w, "no gzip at all")
		default:
			c, _, _ := http.NewResponseController(w).Hijack()
			_, _ = io.WriteString(c, "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n")
			_ = c.Close()
		}
	})
	a := &api{proxyURL: "http://u:CANARY@" + serveProxy(t, forwardTo(site))}
	c := a.client(t)
	c.transport = trusting
	l, err := c.Acquire(t.Context(), Want{})
	require.NoError(t, err)
	defer func() { assert.NoError(t, l.Release(t.Context())) }()
	for path, want := range map[string]Outcome{
		"/loop": {}, "/bad-location": {}, "/ftp": {},
		"/gzip": {ChangeProxy: true, Retry: true}, "/chunks": {ChangeProxy: true, Retry: true},
	} {
		resp, err := l.HTTPClient().Get("https://site.example" + path)
		if err == nil {
			_, err = io.ReadAll(resp.Body)
			_ = resp.Body.Close()
		}
		require.Error(t, err, path)
		assert.Equal(t, want, Judge(resp, err), "%s: %v", path, err)
	}
	resp := &http.Response{Request: &http.Request{URL: &url.URL{Scheme: "https", Host: "b.example"}}}
	assert.Equal(t, Outcome{Report{Result: TargetTimeout, Target: "b.example"}, true, true}, Judge(resp, os.ErrDeadlineExceeded), "of the body")
}
