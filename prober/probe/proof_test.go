package probe

import (
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/api/v1alpha1"
	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/internal/credentials"
	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/prober/probetest"
)

// proving requests an echo endpoint without TLS, so that the proxy can change the request.
func proving(req Request) Request {
	req.HealthCheck.ProbeURL = "http://" + targetName + "/echo?who=prober"
	req.HealthCheck.ExitProof = &v1alpha1.ExitProof{OnHeaderLeak: v1alpha1.ReportHeaderLeak}
	return req
}

func TestExitIsRecorded(t *testing.T) {
	ca := probetest.NewCA(t)
	echo := probetest.ServeTLS(t, ca.Certificate(t, targetName, time.Now().Add(time.Hour)), probetest.Echo)
	req := proving(request(probetest.StartProxy(t, probetest.Forward(probetest.To(echo.Addr))), patient))
	req.HealthCheck.ProbeURL = "https://" + targetName + "/"
	r := New(ca.Pool()).Probe(t.Context(), req)
	assert.Equal(t, Success, r.Outcome, r.Message)
	assert.Equal(t, "127.0.0.1", r.Exit.String())
	assert.Equal(t, "target.invalid answered 200 through the proxy", r.Message)

	r = New(ca.Pool()).Probe(t.Context(), request(probetest.StartProxy(t, probetest.Forward(probetest.To(goodTarget(t, ca).Addr))), patient))
	assert.Equal(t, Success, r.Outcome, "without an echo endpoint")
	assert.False(t, r.Exit.IsValid())
}

// A page of the proxy, a cached response, and another site all have status 200.
func TestResponseOfAnotherServerIsWrongContent(t *testing.T) {
	var first []byte
	remembers := func(c net.Conn, req *http.Request) {
		if first == nil {
			first = []byte(req.URL.Query().Get("nonce"))
		}
		req.URL.RawQuery = "nonce=" + string(first)
		probetest.Echo(c, req)
	}
	cache := probetest.ServeHTTP(t, remembers)
	proxy := probetest.StartProxy(t, probetest.Forward(probetest.To(cache.Addr)))
	require.Equal(t, Success, New(nil).Probe(t.Context(), proving(request(proxy, patient))).Outcome)
	for name, behaviour := range map[string]probetest.Behaviour{
		"a cached answer":         probetest.Forward(probetest.To(cache.Addr)),
		"a page for debtors":      probetest.Say("HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nplease pay"),
		"an endless page":         probetest.Drip("HTTP/1.1 200 OK\r\n\r\n"+string(make([]byte, 40_000)), 0),
		"a site that is not ours": probetest.Say("HTTP/1.1 200 OK\r\n\r\n{\"origin\":\"192.0.2.1\"}"),
	} {
		r := New(nil).Probe(t.Context(), proving(request(probetest.StartProxy(t, behaviour), patient)))
		assert.Equal(t, Failure, r.Outcome, name)
		assert.Equal(t, ReasonWrongContent, r.Reason, "%s: %s", name, r.Message)
		assert.Equal(t, StageBody, r.Stage, name)
	}
}

func TestForwardingHeadersAreReported(t *testing.T) {
	echo := probetest.ServeHTTP(t, probetest.Echo)
	talkative := probetest.Forward(probetest.To(echo.Addr), func(r *http.Request) int {
		r.Header.Set("Via", "1.1 CANARY")
		r.Header.Set("X-Forwarded-For", "10.1.2.3")
		return 0
	})
	req := proving(request(probetest.StartProxy(t, talkative), patient))
	r := New(nil).Probe(t.Context(), req)
	assert.Equal(t, Success, r.Outcome)
	assert.Equal(t, "target.invalid answered 200 through the proxy, which adds Via, X-Forwarded-For", r.Message)

	req.HealthCheck.ExitProof.OnHeaderLeak = v1alpha1.FailOnHeaderLeak
	r = New(nil).Probe(t.Context(), req)
	assert.Equal(t, Failure, r.Outcome)
	assert.Equal(t, ReasonHeaderLeak, r.Reason)
	assert.Equal(t, "body: the proxy adds Via, X-Forwarded-For to requests", r.Message)
	assert.Equal(t, "127.0.0.1", r.Exit.String(), "known all the same")

	quiet := proving(request(probetest.StartProxy(t, probetest.Forward(probetest.To(echo.Addr))), patient))
	quiet.HealthCheck.ExitProof.OnHeaderLeak = v1alpha1.FailOnHeaderLeak
	assert.Equal(t, Success, New(nil).Probe(t.Context(), quiet).Outcome)
}

// The prober knows what it sent: every other header that arrives was added.
func TestAddedHeaders(t *testing.T) {
	echo := probetest.ServeHTTP(t, probetest.Echo)
	secret := credentials.New("crawler", "hush-7c1f")
	for _, tc := range []struct {
		name, header, value string
		leak                bool
		text                string
	}{
		{"an address under any name", "Cf-Connecting-Ip", "10.9.8.7", true, "the proxy adds Cf-Connecting-Ip to requests"},
		{"an address under an odd name", "X-Made-Up", "for=[2001:db8::7]:443", true, "the proxy adds X-Made-Up to requests"},
		{"a proxy's name", "X-Vendor-Proxy", "eu-1", true, "the proxy adds X-Vendor-Proxy to requests"},
		{"the password of the proxy", "Proxy-Authorization", "Basic x", true, "the proxy adds Proxy-Authorization to requests"},
		{"a sent header that was changed", "Accept", "text/html, 10.9.8.7", true, "the proxy adds Accept to requests"},
		{"nothing that identifies", "Cache-Control", "max-age=0", false, ", with added headers without an address: Cache-Control"},
		{"the password in a name", "X-Hush-7C1f", "x", false, "without an address: (a name that is not repeated)"},
		{"the URL in a name", "X-Hush-Url", "x", false, "without an address: (a name that is not repeated)"},
		{"an odd name", "X_made|up", "x", false, "without an address: (a name that is not repeated)"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			adds := probetest.Forward(probetest.To(echo.Addr), func(r *http.Request) int {
				r.Header[tc.header] = []string{tc.value}
				return 0
			})
			if tc.header == proxyAuthorization {
				adds = passesAuthorization(echo.Addr)
			}
			req := proving(request(probetest.StartProxy(t, adds), patient))
			req.HealthCheck.ProbeURL += "&token=hush-url"
			req.HealthCheck.ExitProof.OnHeaderLeak = v1alpha1.FailOnHeaderLeak
			req.Credentials = &secret
			r := New(nil).Probe(t.Context(), req)
			assert.Equal(t, tc.leak, r.Reason == ReasonHeaderLeak, r.Message)
			assert.Equal(t, tc.leak, r.Outcome == Failure)
			assert.Contains(t, r.Message, tc.text)
			assert.NotContains(t, strings.ToLower(r.Message), "hush")
		})
	}
}

const proxyAuthorization = "Proxy-Authorization"

// passesAuthorization forwards a request as it came.
func passesAuthorization(addr string) probetest.Behaviour {
	return func(c net.Conn) {
		up, err := net.Dial("tcp", addr)
		if err != nil {
			return
		}
		defer up.Close()
		go func() { _, _ = io.Copy(up, c) }()
		_, _ = io.Copy(c, up)
	}
}

// A load balancer in front of the echo endpoint is not the proxy.
func TestHeadersInATunnelAreNotTheProxys(t *testing.T) {
	ca := probetest.NewCA(t)
	behind := func(c net.Conn, r *http.Request) {
		r.Header.Set("X-Forwarded-For", "192.0.2.7")
		r.Header.Set("X-Trace", "1")
		probetest.Echo(c, r)
	}
	target := probetest.ServeTLS(t, ca.Certificate(t, targetName, time.Now().Add(time.Hour)), behind)
	req := proving(request(probetest.StartProxy(t, probetest.Forward(probetest.To(target.Addr))), patient))
	req.HealthCheck.ProbeURL = "https://" + targetName + "/"
	req.HealthCheck.ExitProof.OnHeaderLeak = v1alpha1.FailOnHeaderLeak
	r := New(ca.Pool()).Probe(t.Context(), req)
	assert.Equal(t, Success, r.Outcome, r.Message)
	assert.Equal(t, "target.invalid answered 200 through the proxy; something in front of the echo endpoint adds X-Forwarded-For, and may hide the exit address", r.Message)
}

// A load balancer in front of an http echo endpoint adds headers to every request. The
// direct check detects that, so that no proxy is blamed.
func TestHeadersInFrontOfThePlainEndpointFailTheDirectCheck(t *testing.T) {
	target := probetest.ServeHTTP(t, func(c net.Conn, r *http.Request) {
		r.Header.Set("X-Real-Ip", "192.0.2.7")
		probetest.Echo(c, r)
	})
	hc := proving(request(nothing(), patient)).HealthCheck
	hc.ProbeURL, hc.ExitProof.OnHeaderLeak = "http://"+target.Addr+"/", v1alpha1.FailOnHeaderLeak
	r := New(nil).Direct(t.Context(), hc)
	assert.Equal(t, Failure, r.Outcome)
	assert.Equal(t, ReasonHeaderLeak, r.Reason, r.Message)
	assert.Contains(t, r.Message, "something in front of the echo endpoint adds X-Real-Ip")
	assert.True(t, r.Reached())

	hc.ExitProof.OnHeaderLeak = v1alpha1.ReportHeaderLeak
	assert.Equal(t, Success, New(nil).Direct(t.Context(), hc).Outcome)
}

// Credentials and words of the URL are hidden in the names of headers. Short words of the
// URL are no secrets, and short credentials are not hidden within other words.
func TestHideSecrets(t *testing.T) {
	short, long := credentials.New("bob", "x7"), credentials.New("crawler", "hush-7c1f")
	for _, tc := range []struct {
		path   string
		creds  *credentials.Credentials
		name   string
		hidden bool
	}{
		{"/", nil, "Via", false},
		{"/ip", nil, "X-Real-Ip", false},
		{"/?token=abcd", nil, "X-Abcde", true},
		{"/", &short, "X-Bob", true},
		{"/", &short, "X7", true},
		{"/", &short, "X-Bobsled", false},
		{"/", &short, "X7f-Bobby", false},
		{"/", &long, "X-My-Hush-7c1f-1", true},
		{"/", &long, "Crawlers", true},
	} {
		names := []string{tc.name}
		a := &attempt{target: probeURL{path: tc.path}, req: Request{Credentials: tc.creds}}
		a.hideSecrets(names)
		assert.Equal(t, tc.hidden, names[0] != tc.name, "%s with %s", tc.name, tc.path)
	}
}

func TestListedNamesAreBounded(t *testing.T) {
	long := strings.Repeat("x", 40)
	assert.Equal(t, long+", "+long+" and 2 more", listed([]string{long, long, long, long}))
	assert.Equal(t, "a, b", listed([]string{"a", "b"}))
}
