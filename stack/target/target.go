// Package target is a small HTTPS server on loopback: the probe target of the local stack, and the
// site that its crawlers fetch.
package target

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"log/slog"
	"math/big"
	"net"
	"net/http"
	"strconv"
	"time"

	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/internal/echo"
	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/internal/httpapi"
)

// certLifetime is longer than any local stack runs.
const certLifetime = 30 * 24 * time.Hour

// Seen is what the target received; GET / returns it.
type Seen struct {
	// Peer is the source IP address of the connection: the proxy's.
	Peer string `json:"peer"`
	// Method of the request, such as GET.
	Method string `json:"method"`
	// Host header of the request.
	Host string `json:"host"`
	// Forwarded holds the headers that identify a proxy's client.
	Forwarded map[string]string `json:"forwarded"`
}

// Target is a running server.
type Target struct {
	// URL is its root, such as https://127.41.7.1:34567.
	URL string
	// CertPEM verifies it: the certificate is its own authority.
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
	cert, certPEM, err := selfSigned(net.ParseIP(ip))
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
	forwarded := map[string]string{}
	for _, name := range []string{"Forwarded", "Via", "X-Forwarded-For", "X-Real-Ip", "Proxy-Authorization"} {
		if v := r.Header.Get(name); v != "" {
			forwarded[name] = v
		}
	}
	return Seen{Peer: peer, Method: r.Method, Host: r.Host, Forwarded: forwarded}
}

// selfSigned creates a certificate for ip that is its own authority. Its key is never written to
// disk.
func selfSigned(ip net.IP) (tls.Certificate, []byte, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return tls.Certificate{}, nil, fmt.Errorf("create a key: %w", err)
	}
	now := time.Now()
	template := &x509.Certificate{
		SerialNumber: big.NewInt(now.UnixNano()),
		Subject:      pkix.Name{CommonName: "local probe target"},
		NotBefore:    now.Add(-time.Hour),
		NotAfter:     now.Add(certLifetime),
		KeyUsage:     x509.KeyUsageDigitalSignature,
		ExtKeyUsage:  []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
		IPAddresses:  []net.IP{ip},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		return tls.Certificate{}, nil, fmt.Errorf("create a certificate: %w", err)
	}
	certPEM := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}, certPEM, nil
}
