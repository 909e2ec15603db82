package probe

import (
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/internal/credentials"
	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/prober/probetest"
)

func squidError(code string) http.Header { return http.Header{headerSquidError: {code}} }

func proxyStatus(values ...string) http.Header { return http.Header{headerProxyStatus: values} }

func TestRefusals(t *testing.T) {
	for _, tc := range []struct {
		name   string
		status int
		header http.Header
		reason Reason
		text   string
	}{
		{"a dead name, squid 5", 500, squidError("ERR_CANNOT_FORWARD 0"), ReasonUpstreamFailed, textNoAddress},
		{"a dead name, squid 6 and 7", 503, squidError("ERR_DNS_FAIL 0"), ReasonUpstreamFailed, textNoAddress},
		{"a dead name in a plain request, squid 5", 502, squidError("ERR_READ_ERROR 0"), ReasonUpstreamFailed, textNoAddress},
		{"a connection broken off by the target", 502, squidError("ERR_READ_ERROR 104"), ReasonUpstreamFailed, "cannot reach"},
		{"a closed port", 503, squidError("ERR_CONNECT_FAIL 111"), ReasonUpstreamFailed, textConnRST},
		{"a silent target", 503, squidError("ERR_CONNECT_FAIL 110"), ReasonUpstreamFailed, textConnTime},
		{"no route", 503, squidError("ERR_CONNECT_FAIL 113"), ReasonUpstreamFailed, textNoRoute},
		{"another errno", 503, squidError("ERR_CONNECT_FAIL 99"), ReasonUpstreamFailed, "cannot connect"},
		{"squid denies", 403, squidError("ERR_ACCESS_DENIED 0"), ReasonConnectRefused, textDenied},
		{"squid denies by a redirect", 302, squidError("302 Access Denied"), ReasonConnectRefused, "policy"},
		{"squid wants credentials", 407, squidError("ERR_CACHE_ACCESS_DENIED 0"), ReasonProxyAuthRefused, "set credentialsRef"},
		{"squid takes the URL for invalid", 400, squidError("ERR_INVALID_URL 0"), ReasonConnectRefused, "invalid"},
		{"an unknown code of squid", 400, squidError("ERR_NEW 7"), ReasonConnectRefused, "policy"},
		{"RFC 9209: DNS", 502, proxyStatus(`p; error=dns_error; rcode="NXDOMAIN"`), ReasonUpstreamFailed, textNoAddress},
		{"RFC 9209: policy in spite of a 5xx", 502, proxyStatus("p;error=destination_ip_prohibited"), ReasonConnectRefused, "deny"},
		{"RFC 9209: an unknown type", 504, proxyStatus("p; error=made_up"), ReasonUpstreamFailed, "cannot reach"},
		{"RFC 9209: the last member is the nearest", 503, proxyStatus("cdn; error=dns_error", `p; details="a, b; error=dns_error"; error=connection_refused`), ReasonUpstreamFailed, textConnRST},
		{"tinyproxy: 500 without a mark", 500, nil, ReasonUpstreamFailed, "check its DNS"},
		{"507", 507, nil, ReasonUpstreamFailed, "cannot reach"},
		{"522, a status of vendors", 522, nil, ReasonUpstreamFailed, "cannot reach"},
		{"610, no status at all", 610, nil, ReasonUpstreamFailed, "cannot reach"},
		{"402", 402, nil, ReasonConnectRefused, "payment"},
		{"429", 429, nil, ReasonConnectRefused, "rate"},
		{"418", 418, nil, ReasonConnectRefused, "policy"},
		{"401", 401, nil, ReasonProxyAuthRefused, "set credentialsRef"},
		{"403 with a challenge", 403, http.Header{headerChallenge: {"Basic"}}, ReasonProxyAuthRefused, "set credentialsRef"},
		{"a web server: 405", 405, nil, ReasonConnectFailed, "check that it is a proxy"},
		{"a web server: 501", 501, nil, ReasonConnectFailed, "check that it is a proxy"},
		{"a web server: a redirect", 308, nil, ReasonConnectFailed, "check that it is a proxy"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			marks := marksOf(tc.header)
			var got stageError
			require.ErrorAs(t, marks.refusal(tc.status, "CONNECT", false), &got)
			assert.Equal(t, tc.reason, got.reason)
			assert.Contains(t, got.text, fmt.Sprintf("the proxy answered %d to CONNECT", tc.status))
			assert.Contains(t, got.text, tc.text)
		})
	}
}

// Over plain http a refusal of the proxy itself is not the target's response, unless a
// proxy in front of the target sends the same marks. None sends 407 or a challenge.
func TestRefusalOfThePlainProxyIsItsOwn(t *testing.T) {
	wrong := credentials.New("crawler", "stale")
	for _, tc := range []struct {
		name, answer string
		reason       Reason
		text         string
		far          bool
	}{
		{"401 with a proxy's challenge", "HTTP/1.1 401 Unauthorized\r\nproxy-authenticate: Basic realm=\"x\"\r\n", ReasonProxyAuthRefused, "http: the proxy answered 401 to the request: it does not accept", false},
		{"403 with a proxy's challenge", "HTTP/1.1 403 Forbidden\r\nProxy-Authenticate: Basic\r\n", ReasonProxyAuthRefused, "does not accept", false},
		{"407", "HTTP/1.1 407 no\r\n", ReasonProxyAuthRefused, "does not accept", false},
		{"407 of squid", "HTTP/1.1 407 no\r\nX-Squid-Error: ERR_CACHE_ACCESS_DENIED 0\r\n", ReasonProxyAuthRefused, "does not accept", false},
		{"denied by squid", "HTTP/1.1 403 Forbidden\r\nX-Squid-Error: ERR_ACCESS_DENIED 0\r\n", ReasonConnectRefused, "or a proxy in front of target.invalid did: " + textDenied, true},
		{"denied by a CDN", "HTTP/1.1 403 Forbidden\r\nProxy-Status: cdn; error=http_request_denied\r\n", ReasonConnectRefused, textDenied, true},
		{"401 of an accelerator", "HTTP/1.1 401 no\r\nX-Squid-Error: ERR_CACHE_ACCESS_DENIED 0\r\n", ReasonProxyAuthRefused, "does not accept", true},
		{"a page of squid's", "HTTP/1.1 302 Found\r\nLocation: http://pay.invalid/\r\nX-Squid-Error: 302 Access Denied\r\n", ReasonConnectRefused, "policy", true},
		{"no address", "HTTP/1.1 502 no\r\nProxy-Status: p; error=dns_error\r\n", ReasonUpstreamFailed, textNoAddress, true},
		{"401, of either", "HTTP/1.1 401 Unauthorized\r\nWWW-Authenticate: Basic\r\n", ReasonUnexpectedStatus, "target.invalid or the proxy itself answered 401", true},
		{"503, of either", "HTTP/1.1 503 no\r\n", ReasonUnexpectedStatus, "target.invalid or the proxy itself answered 503", true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			req := request(probetest.StartProxy(t, probetest.Say(tc.answer+"Content-Length: 0\r\n\r\n")), patient)
			req.HealthCheck.ProbeURL, req.Credentials = "http://"+targetName+"/", &wrong
			r := New(nil).Probe(t.Context(), req)
			assert.Equal(t, Failure, r.Outcome)
			assert.Equal(t, tc.reason, r.Reason, r.Message)
			assert.Contains(t, r.Message, tc.text)
			assert.Equal(t, tc.far, r.Far(), "a direct check decides whose it is")
		})
	}
}

// In a tunnel the same headers are the target's.
func TestMarksInATunnelAreTheTargets(t *testing.T) {
	ca := probetest.NewCA(t)
	cert := ca.Certificate(t, targetName, time.Now().Add(time.Hour))
	target := probetest.ServeTLS(t, cert, probetest.Text("HTTP/1.1 403 no\r\nX-Squid-Error: ERR_ACCESS_DENIED 0\r\nProxy-Authenticate: Basic\r\n\r\n"))
	r := New(ca.Pool()).Probe(t.Context(), request(probetest.StartProxy(t, probetest.Forward(probetest.To(target.Addr))), patient))
	assert.Equal(t, ReasonTargetRefused, r.Reason, r.Message)
}

// squidConf has a name server that is not there, so that no name has an address.
const squidConf = `http_port %s
pid_filename none
coredump_dir /
access_log none
cache_log /dev/null
netdb_filename none
pinger_enable off
cache deny all
cache_mem 1 MB
max_filedescriptors 1024
visible_hostname squid
hosts_file none
dns_nameservers 127.0.0.1
dns_timeout 1 second
dns_retransmit_interval 1 second
auth_param basic program /usr/lib/squid/basic_fake_auth
acl locked dstdomain locked.invalid
acl user proxy_auth REQUIRED
acl denied dstdomain denied.invalid
http_access deny denied
http_access allow locked user
http_access deny locked
http_access allow all
`

// startSquid runs the squid in PATH and returns its address.
func startSquid(t *testing.T) *net.TCPAddr {
	t.Helper()
	t.Setenv("PATH", os.Getenv("PATH")+":/usr/sbin:/usr/local/sbin")
	squid, err := exec.LookPath("squid")
	if err != nil {
		require.Empty(t, os.Getenv("PX_REQUIRE_SQUID"), "squid is required")
		t.Skip("this machine has no squid; scripts/deps.sh installs it")
	}
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	addr := ln.Addr().(*net.TCPAddr)
	require.NoError(t, ln.Close())
	conf := filepath.Join(t.TempDir(), "squid.conf")
	require.NoError(t, os.WriteFile(conf, fmt.Appendf(nil, squidConf, addr), 0o600))
	cmd := exec.Command(squid, "-N", "-f", conf)
	require.NoError(t, cmd.Start())
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	require.Eventually(t, func() bool {
		c, err := net.Dial("tcp", addr.String())
		if err == nil {
			_ = c.Close()
		}
		return err == nil
	}, patient, 20*time.Millisecond)
	return addr
}

func TestRefusalsOfRealSquid(t *testing.T) {
	proxy := startSquid(t)
	closed := probetest.StartProxy(t, probetest.Hang)
	closed.Close()
	for _, tc := range []struct {
		name, host string
		reason     Reason
		text       string
	}{
		{"a name without an address", "no-such-name.invalid", ReasonUpstreamFailed, textNoAddress},
		{"a closed port", closed.Addr, ReasonUpstreamFailed, textConnRST},
		{"a denied name", "denied.invalid", ReasonConnectRefused, textDenied},
		{"a name for users alone", "locked.invalid", ReasonProxyAuthRefused, "set credentialsRef"},
	} {
		for scheme, stage := range map[string]Stage{"https": StageConnect, "http": StageHTTP} {
			t.Run(strings.ToUpper(scheme)+" "+tc.name, func(t *testing.T) {
				req := request(nothing(), patient)
				req.Host, req.Port = proxy.IP.String(), int32(proxy.Port)
				req.HealthCheck.ProbeURL = scheme + "://" + tc.host + "/"
				r := New(nil).Probe(t.Context(), req)
				assert.Equal(t, tc.reason, r.Reason, r.Message)
				assert.Equal(t, stage, r.Stage)
				assert.Contains(t, r.Message, tc.text)
			})
		}
	}
}
