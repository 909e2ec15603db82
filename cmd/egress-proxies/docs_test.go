package main

import (
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/internal/docpages"
	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/internal/program/programtest"
	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/prober/probetest"
)

// The commands of the documents run the real curl and wget through a proxy that takes
// every host to one site.
func TestDocumentedCommands(t *testing.T) {
	for _, program := range []string{"curl", "wget"} {
		if _, err := exec.LookPath(program); err != nil {
			t.Skipf("%s is not installed", program)
		}
	}
	dir := t.TempDir()
	require.NoError(t, programtest.Build(dir, "."))
	ca := probetest.NewCA(t)
	caFile, wgetrc := filepath.Join(dir, "ca.pem"), filepath.Join(dir, "wgetrc")
	require.NoError(t, os.WriteFile(caFile, ca.PEM(), 0o600))
	require.NoError(t, os.WriteFile(wgetrc, []byte("ca_certificate = "+caFile+"\n"), 0o600))

	site := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "a page\n") }))
	site.TLS = &tls.Config{Certificates: []tls.Certificate{ca.Certificate(t, "shop.example", time.Now().Add(time.Hour))}}
	site.StartTLS()
	defer site.Close()
	proxy := probetest.StartProxy(t, probetest.Forward(probetest.To(site.Listener.Addr().String())))
	api := serveLeases("http://" + net.JoinHostPort(proxy.Host(), fmt.Sprint(proxy.Port())))
	defer api.Close()

	blocks := docpages.Mine(t, "../..", "cmd/egress-proxies")
	require.NotEmpty(t, blocks)
	for _, block := range blocks {
		for _, command := range block.Commands() {
			cmd := exec.Command("bash", "-euc", command)
			cmd.Env = append(os.Environ(), "PATH="+dir+":"+os.Getenv("PATH"), "DISCOVERY="+api.URL, "CURL_CA_BUNDLE="+caFile, "WGETRC="+wgetrc)
			out, err := cmd.CombinedOutput()
			require.NoError(t, err, "%s: %s", command, out)
			assert.Contains(t, string(out), "a page", command)
		}
	}
	assert.Equal(t, 4, proxy.Seen(), "requests through the proxy")
}

// serveLeases serves a discovery API whose leases are all on one proxy.
func serveLeases(proxyURL string) *httptest.Server {
	return httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodPost {
			fmt.Fprintf(w, `{"leaseID":"ID","proxy":{},"proxyURL":%q,"expiresAt":"2100-01-01T00:00:00Z","ttlSeconds":300}`, proxyURL)
		}
	}))
}
