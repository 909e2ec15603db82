package api

import (
	"context"
	"encoding/json"
	"math/rand/v2"
	"net/http"
	"net/url"
	"os/exec"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/discovery/fleet"
	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/internal/credentials"
)

func TestGrantHasThePartsOfItsURL(t *testing.T) {
	a := newAPI(t)
	for password, wantURL := range map[string]string{
		"c2VjcmV0==": "http://crawler:c2VjcmV0%3D%3D@[2001:db8::7]:3128",
		"":           "http://crawler:@[2001:db8::7]:3128",
	} {
		a.secrets.read = func(context.Context, string) (credentials.Credentials, error) {
			return credentials.New("crawler", password), nil
		}
		a.fleet.set(aProxy("a", withMaxLeases(9), withSecret("login-"+strconv.Itoa(len(password))), func(p *fleet.Proxy) { p.Host = "2001:db8::7" }))
		g := a.lease(`{}`)
		assert.Equal(t, wantURL, g.ProxyURL)
		assert.Equal(t, []any{"http", "2001:db8::7", int32(3128)}, []any{g.Scheme, g.Host, g.Port})
		require.NotNil(t, g.Username)
		assert.Equal(t, "crawler", *g.Username)
		assert.Equal(t, password, *g.Password)
	}
	a.fleet.set(aProxy("a", withMaxLeases(9)))
	res := a.post("/v1/leases", `{}`)
	assert.NotContains(t, res.body, "username")
	assert.NotContains(t, res.body, "password")
}

// JSON would replace the bytes, so that a client would send another password.
func TestGrantLeavesOutALoginThatIsNotUTF8(t *testing.T) {
	g := newGrantBody(leaseOf(t), aProxy("a"), &login{"crawler", "\xff"})
	assert.Nil(t, g.Username)
	assert.Nil(t, g.Password)
	assert.Equal(t, "http://crawler:%FF@10.0.0.7:3128", g.ProxyURL)
}

// whatwgLogin parses userinfo as the URL standard does, which browsers and undici follow.
func whatwgLogin(t *testing.T, raw string) (username, password string) {
	t.Helper()
	_, rest, ok := strings.Cut(raw, "://")
	require.True(t, ok)
	authority := rest
	if i := strings.IndexAny(rest, `/\?#`); i >= 0 {
		authority = rest[:i]
	}
	userinfo := authority[:strings.LastIndexByte(authority, '@')]
	username, password, _ = strings.Cut(userinfo, ":")
	decode := func(s string) string {
		var out []byte
		for i := 0; i < len(s); i++ {
			if n, err := strconv.ParseUint(s[min(i+1, len(s)):min(i+3, len(s))], 16, 8); s[i] == '%' && err == nil && i+2 < len(s) {
				out = append(out, byte(n))
				i += 2
				continue
			}
			out = append(out, s[i])
		}
		return string(out)
	}
	return decode(username), decode(password)
}

// TestProxyURLGivesTheLoginBack tries every byte and random texts with the parsers that
// clients have, and wants no sub-delimiter in the URL.
func TestProxyURLGivesTheLoginBack(t *testing.T) {
	passwords := []string{"c2VjcmV0==", "", "p%40ss", "a+b c", `!$&'()*+,;=:@/?#[]\^|"<>{}`, "žluťoučký\U0001F40E", "%", "%3D%"}
	for b := range 256 {
		passwords = append(passwords, string([]byte{byte(b)}))
	}
	for range 300 {
		text := make([]byte, rand.IntN(20))
		for i := range text {
			text[i] = byte(rand.IntN(256))
		}
		passwords = append(passwords, string(text))
	}
	var urls []string
	for _, password := range passwords {
		user := &login{username: "u" + password, password: password}
		raw := proxyURL(aProxy("a"), user)
		urls = append(urls, raw)
		userinfo := strings.TrimSuffix(strings.TrimPrefix(raw, "http://"), "@10.0.0.7:3128")
		assert.False(t, strings.ContainsAny(userinfo, `!$&'()*+,;=@/?#[]\`), raw)
		assert.Equal(t, 1, strings.Count(userinfo, ":"), raw)

		parsed, err := url.Parse(raw)
		require.NoError(t, err)
		got, _ := parsed.User.Password()
		assert.Equal(t, []string{user.username, user.password}, []string{parsed.User.Username(), got}, raw)
		username, secret := whatwgLogin(t, raw)
		assert.Equal(t, []string{user.username, user.password}, []string{username, secret}, raw)
		assert.Equal(t, "10.0.0.7:3128", parsed.Host)
	}
	pythonLogins(t, urls, passwords)
}

// pythonLogins compares with what requests and urllib make of the URLs.
func pythonLogins(t *testing.T, urls, passwords []string) {
	python, err := exec.LookPath("python3")
	if err != nil {
		t.Log("no python3: its urllib was not tried")
		return
	}
	const script = `
import json, sys
from urllib.parse import urlsplit, unquote_to_bytes
out = []
for u in json.load(sys.stdin):
    p = urlsplit(u)
    out.append([unquote_to_bytes(p.username).hex(), unquote_to_bytes(p.password).hex(), p.hostname, p.port])
json.dump(out, sys.stdout)`
	in, err := json.Marshal(urls)
	require.NoError(t, err)
	cmd := exec.CommandContext(t.Context(), python, "-c", script)
	cmd.Stdin = strings.NewReader(string(in))
	out, err := cmd.Output()
	require.NoError(t, err)
	var got [][]any
	require.NoError(t, json.Unmarshal(out, &got))
	require.Len(t, got, len(passwords))
	for i, password := range passwords {
		assert.Equal(t, []any{hexOf("u" + password), hexOf(password), "10.0.0.7", 3128.0}, got[i], urls[i])
	}
}

func hexOf(s string) string {
	const hex = "0123456789abcdef"
	var out strings.Builder
	for _, c := range []byte(s) {
		out.Write([]byte{hex[c>>4], hex[c&15]})
	}
	return out.String()
}

func TestSchemesRestrictTheChoice(t *testing.T) {
	a := newAPI(t)
	tls := func(p *fleet.Proxy) { p.Scheme = "https" }
	a.fleet.set(aProxy("plain", withMaxLeases(9)), aProxy("tls", withMaxLeases(9), tls))
	for range 3 {
		assert.Equal(t, "plain", a.lease(`{"schemes":["http"]}`).Proxy.Name)
		g := a.lease(`{"schemes":["https","https"]}`)
		assert.Equal(t, "tls", g.Proxy.Name)
		assert.Equal(t, "https", g.Scheme)
	}
	a.fleet.set(aProxy("tls", tls), aProxy("sick", tls, inPhase("Unhealthy")))
	p := a.refused(`{"schemes":["socks5","http"],"wait":30}`)
	assert.Equal(t, noMatchCounts{Considered: 2, OtherScheme: 2}, p.noMatchCounts)
	assert.Equal(t, "2 proxies match: 2 of another scheme than http, socks5", p.Detail)
	assert.Zero(t, p.RetryAfterSeconds, "waiting does not help")

	for body, want := range map[string]string{
		`{"schemes":["HTTP"]}`: `schemes: "HTTP" is not known; want any of http, https, socks5, or leave it out for all`,
		`{"schemes":[]}`:       `schemes is empty`,
		`{"schemes":[null]}`:   `field "schemes": want a list of strings, got null`,
		`{"schemes":"http"}`:   `field "schemes": want a list of strings, got string`,
	} {
		assert.Contains(t, a.post("/v1/leases", body).problem(http.StatusBadRequest, codeInvalidRequest).Detail, want)
	}
}

func TestSchemesArePartOfTheRequestUnderAKey(t *testing.T) {
	a := newAPI(t)
	a.fleet.set(aProxy("a", withMaxLeases(9)))
	acquire := func(body string) answer { return a.send(http.MethodPost, "/v1/leases", body, keyHeader, "key") }
	first := acquire(`{"schemes":["https","http"]}`)
	require.Equal(t, http.StatusCreated, first.status)
	assert.JSONEq(t, first.body, acquire(`{"schemes":["http","https","http"],"waitForMatch":true}`).body, "the order does not matter")
	acquire(`{"schemes":["http"]}`).problem(http.StatusUnprocessableEntity, codeKeyReused)
}
