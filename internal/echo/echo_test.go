package echo

import (
	"bufio"
	"bytes"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func ask(method, url, remote string, header http.Header) *httptest.ResponseRecorder {
	rec := httptest.NewRecorder()
	req := httptest.NewRequest(method, url, nil)
	req.RemoteAddr = remote
	for name, values := range header {
		req.Header[name] = values
	}
	Handler().ServeHTTP(rec, req)
	return rec
}

func TestAnswerContainsPeerAndForwardingHeaders(t *testing.T) {
	for remote, want := range map[string]string{
		"192.0.2.7:1234":          "192.0.2.7",
		"[2001:db8::7]:1234":      "2001:db8::7",
		"[::ffff:192.0.2.7]:1234": "192.0.2.7",
		"[fe80::1%eth0]:1234":     "fe80::1",
	} {
		rec := ask(http.MethodGet, "/any/path?nonce=n1&x=y", remote, http.Header{"Via": {"1.1 a", "1.1 b"}, "X-Forwarded-For": {"10.0.0.1"}, "Accept": {"*/*"}})
		require.Equal(t, http.StatusOK, rec.Code)
		assert.Equal(t, "no-store", rec.Header().Get("Cache-Control"))
		assert.JSONEq(t, `{"nonce":"n1","peer":"`+want+`","forwarded":{"Via":"1.1 a, 1.1 b","X-Forwarded-For":"10.0.0.1"},"others":["Accept"]}`, rec.Body.String())
		seen, err := Read(rec.Body.Bytes(), "n1", "Accept", "User-Agent")
		require.NoError(t, err)
		assert.Equal(t, Seen{Exit: netip.MustParseAddr(want), Leaks: []string{"Via", "X-Forwarded-For"}}, seen)
	}
}

// A proxy forwards its password: the response reports that, without the password.
func TestPasswordIsNotRepeated(t *testing.T) {
	rec := ask(http.MethodGet, "/?nonce=n", "192.0.2.7:1", http.Header{proxyAuthorization: {"Basic CANARY"}})
	assert.NotContains(t, rec.Body.String(), "CANARY")
	seen, err := Read(rec.Body.Bytes(), "n")
	require.NoError(t, err)
	assert.Equal(t, []string{proxyAuthorization}, seen.Leaks)
}

func TestAnswersAreBounded(t *testing.T) {
	header := http.Header{}
	for i := range 500 {
		header[fmt.Sprintf("X-Proxy-%d%s", i, strings.Repeat("&", 9*i))] = []string{strings.Repeat("<", 5000)}
		header[fmt.Sprintf("Other-%d%s", i, strings.Repeat("&", 9*i))] = []string{"x"}
	}
	rec := ask(http.MethodGet, "/?nonce="+strings.Repeat("n", MaxNonce), "192.0.2.7:1", header)
	assert.Less(t, rec.Body.Len(), MaxAnswer)
	assert.Contains(t, rec.Body.String(), "X-Proxy-0")
	assert.Equal(t, http.StatusBadRequest, ask(http.MethodGet, "/?nonce="+strings.Repeat("n", MaxNonce+1), "192.0.2.7:1", nil).Code)
	assert.Equal(t, http.StatusMethodNotAllowed, ask(http.MethodPost, "/", "192.0.2.7:1", nil).Code)
	assert.Equal(t, http.StatusOK, ask(http.MethodGet, "//a/../b", "192.0.2.7:1", nil).Code, "no redirect")
}

func TestReadRejectsOtherBodies(t *testing.T) {
	for name, body := range map[string]string{
		"nothing":         "",
		"a page":          "<html>please pay</html>",
		"another nonce":   `{"nonce":"old","peer":"192.0.2.7"}`,
		"no nonce":        `{"peer":"192.0.2.7"}`,
		"no address":      `{"nonce":"n","peer":"CANARY"}`,
		"another type":    `{"nonce":1,"peer":"192.0.2.7"}`,
		"more behind it":  `{"nonce":"n","peer":"192.0.2.7"}{}`,
		"broken off":      `{"nonce":"n","peer":"192.0`,
		"a list":          `[]`,
		"null":            `null`,
		"another's shape": `{"nonce":"n","origin":"192.0.2.7"}`,
	} {
		_, err := Read([]byte(body), "n")
		require.ErrorIs(t, err, ErrNotOurs, name)
		assert.NotContains(t, err.Error(), "CANARY")
	}
	seen, err := Read([]byte(`{"nonce":"n","peer":"::ffff:192.0.2.7","forwarded":{"Cf-Connecting-Ip":"CANARY","a\nb":"","<b>":""},"others":["Accept","Dnt","Dnt","`+strings.Repeat("x", 41)+`"]}`), "n", "Accept")
	require.NoError(t, err)
	assert.Equal(t, Seen{Exit: netip.MustParseAddr("192.0.2.7"), Leaks: []string{HiddenName, "Cf-Connecting-Ip"}, Added: []string{HiddenName, "Dnt"}}, seen,
		"only plain names are repeated")
}

func TestWithNonce(t *testing.T) {
	for raw, want := range map[string]string{
		"https://e.example":                 "https://e.example?nonce=n",
		"https://e.example/echo?x=1#f":      "https://e.example/echo?nonce=n&x=1#f",
		"http://e.example/?nonce=old&x=a+b": "http://e.example/?nonce=n&x=a+b",
	} {
		got, err := WithNonce(raw, "n")
		require.NoError(t, err)
		assert.Equal(t, want, got)
	}
	_, err := WithNonce("http://bad\x00CANARY", "n")
	require.Error(t, err)
	assert.NotContains(t, err.Error(), "CANARY")
}

// Read neither panics nor repeats text of the body, whatever a proxy sends instead of the
// endpoint's response.
func FuzzRead(f *testing.F) {
	f.Add([]byte(`{"nonce":"n","peer":"192.0.2.7","forwarded":{"Via":"x"}}`), "n")
	f.Add([]byte(`{"nonce":"n","peer":"fe80::1%CANARY"}`), "n")
	f.Fuzz(func(t *testing.T, body []byte, nonce string) {
		seen, err := Read(body, nonce)
		if err != nil {
			require.ErrorIs(t, err, ErrNotOurs)
			return
		}
		require.True(t, seen.Exit.IsValid())
		require.Empty(t, seen.Exit.Zone())
		for _, name := range slices.Concat(seen.Leaks, seen.Added) {
			require.Regexp(t, `^([A-Za-z0-9-]{1,40}|\(a name that is not repeated\))$`, name)
		}
	})
}

// For every request the response is one that Read accepts, within its bound, and does not
// repeat a password.
func FuzzHandler(f *testing.F) {
	f.Add([]byte("GET /?nonce=abc HTTP/1.1\r\nHost: e\r\nVia: 1.1 x\r\nX-Forwarded-For: 10.0.0.1, \xff\r\nProxy-Authorization: Basic CANARY-5f2c\r\n\r\n"), "[::ffff:192.0.2.7]:80")
	f.Add([]byte("GET /a/../b?nonce=%00&nonce=x;y HTTP/1.0\r\n\r\n"), "[fe80::1%eth0]:1")
	f.Add([]byte("POST http://e/?nonce= HTTP/1.1\r\nHost: e\r\n\r\n"), "@")
	f.Add([]byte("GET /"+strings.Repeat("/<", MaxAnswer/4)+" HTTP/1.0\r\n\r\n"), "192.0.2.7:80")
	f.Add([]byte("GET / HTTP/1.0\r\n\r\n"), strings.Repeat("\xf3", MaxAnswer))
	f.Add([]byte("GET /?nonce=\x87\x87 HTTP/1.0\r\n\r\n"), "192.0.2.7:80")
	f.Add([]byte("GET / HTTP/1.0\r\n\r\n"), "[::1%eth0]:\xab::1%eth0]:1")
	f.Fuzz(func(t *testing.T, raw []byte, remote string) {
		r, err := http.ReadRequest(bufio.NewReader(bytes.NewReader(raw)))
		if err != nil {
			return
		}
		r.RemoteAddr = remote
		rec := httptest.NewRecorder()
		Handler().ServeHTTP(rec, r)
		require.LessOrEqual(t, rec.Body.Len(), MaxAnswer)
		require.Less(t, rec.Code, http.StatusInternalServerError)
		if rec.Code != http.StatusOK || r.Method == http.MethodHead {
			return
		}
		password := r.Header.Get(proxyAuthorization)
		if strings.HasPrefix(password, "Basic CANARY") && bytes.Count(raw, []byte("CANARY")) == 1 {
			require.NotContains(t, rec.Body.String(), "CANARY-5f2c")
		}
		if _, err := netip.ParseAddrPort(remote); err != nil {
			return // package http sets no such address
		}
		nonce := string([]rune(r.URL.Query().Get(NonceParam))) // U+FFFD for each odd byte, as JSON has it
		seen, err := Read(rec.Body.Bytes(), nonce)
		require.NoError(t, err)
		if rec.Body.Len() > MaxAnswer/2 {
			return // some may be left out
		}
		for _, name := range forwardingHeaders {
			require.Equal(t, len(r.Header.Values(name)) > 0, slices.Contains(seen.Leaks, name), name)
		}
	})
}
