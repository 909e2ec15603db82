// Package target is a small HTTPS server on loopback: the probe target of the local stack, and the
// site that its crawlers fetch.
package target

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"strconv"

	certutil "k8s.io/client-go/util/cert"

	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/internal/echo"
	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/internal/httpapi"
)

// Seen is what the target received; GET / returns it.
type Seen struct {
	Peer   string `json:"peer"`   // the source IP address of the connection: the proxy's
	Method string `json:"method"` // of the request, such as GET
	Host   string `json:"host"`   // header of the request
	// Forwarded holds the headers that identify a proxy's client.
	Forwarded map[string]string `json:"forwarded"`
}

// Target is a running server.
type Target struct {
	// URL is its root, such as https://127.41.7.1:34567.
	URL string
	// CertPEM verifies it: its certificate and the authority of that, whose key is never written to disk.
	CertPEM []byte

	ln   net.Listener
	srv  *http.Server
	cert tls.Certificate
	log  *slog.Logger
}

// New listens on a free port of ip. Run serves.
func New(ip string, log *slog.Logger) (*Target, error) { return NewAt(ip, 0, log) }

// NewAt is New on a given port.
func NewAt(ip string, port int, log *slog.Logger) (*Target, error) {
	ln, err := net.Listen("tcp", net.JoinHostPort(ip, strconv.Itoa(port)))
	if err != nil {
		return nil, fmt.Errorf("probe target: %w", err)
	}
	certPEM, keyPEM, err := certutil.GenerateSelfSignedCertKey(ip, nil, nil)
	if err != nil {
		return nil, fmt.Errorf("probe target: create a certificate: %w", err)
	}
	cert, err := tls.X509KeyPair(certPEM, keyPEM)
	if err != nil {
		return nil, fmt.Errorf("probe target: %w", err)
	}
	return newTarget(ln, cert, certPEM, log), nil
}

func newTarget(ln net.Listener, cert tls.Certificate, certPEM []byte, log *slog.Logger) *Target {
	srv := httpapi.NewServer(Handler(), log)
	srv.TLSConfig = &tls.Config{Certificates: []tls.Certificate{cert}, MinVersion: tls.VersionTLS12}
	return &Target{URL: "https://" + ln.Addr().String(), CertPEM: certPEM, ln: ln, srv: srv, cert: cert, log: log}
}

// Again returns a target at the same address and with the same certificate, after Run has returned.
func (t *Target) Again() (*Target, error) {
	ln, err := net.Listen("tcp", t.ln.Addr().String())
	if err != nil {
		return nil, fmt.Errorf("probe target: %w", err)
	}
	return newTarget(ln, t.cert, t.CertPEM, t.log), nil
}

// Port is the TCP port.
func (t *Target) Port() int { return t.ln.Addr().(*net.TCPAddr).Port }

// Pool holds the certificate that verifies the site.
func (t *Target) Pool() *x509.CertPool {
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(t.CertPEM)
	return pool
}

// Run serves until ctx ends.
func (t *Target) Run(ctx context.Context) error { return httpapi.Run(ctx, t.srv, t.ln) }

// Handler returns 204 for GET /generate_204, as public probe URLs do, the echo endpoint for GET
// /echo, and what it has Seen for GET /.
func Handler() http.Handler {
	mux := http.NewServeMux()
	mux.Handle("GET /echo", echo.Handler())
	mux.HandleFunc("GET /generate_204", func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusNoContent)
	})
	mux.HandleFunc("GET /{$}", func(w http.ResponseWriter, r *http.Request) {
		body, err := json.Marshal(seen(r))
		if err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		_, _ = w.Write(append(body, '\n'))
	})
	return mux
}

func seen(r *http.Request) Seen {
	peer, _, err := net.SplitHostPort(r.RemoteAddr)
	if err != nil {
		peer = r.RemoteAddr
	}
	return Seen{Peer: peer, Method: r.Method, Host: r.Host, Forwarded: echo.Forwarding(r.Header)}
}
