package bench

import (
	"bufio"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"sync/atomic"
)

// runFloor is the least that a probe can be: dial, CONNECT, TLS with the
// certificate verified, one request, over and over, as many at once as the prober
// has workers. No deadlines, no verdicts, no metrics.
func runFloor(dir string) error {
	var s settings
	var at addresses
	if err := errors.Join(readJSON(filepath.Join(dir, "settings.json"), &s), readJSON(filepath.Join(dir, "addresses.json"), &at)); err != nil {
		return err
	}
	pem, err := os.ReadFile(filepath.Join(dir, "ca.pem"))
	if err != nil {
		return err
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(pem)
	// The key exchange is the prober's: it is no merit of the loop around it.
	config := &tls.Config{ServerName: targetName, RootCAs: roots, CurvePreferences: []tls.CurveID{tls.X25519, tls.CurveP256}}
	var next atomic.Int64
	failed := make(chan error)
	for range s.Workers {
		go func() {
			for {
				i := int(next.Add(1)) % s.Proxies
				if err := bare(net.JoinHostPort(proxyHost(i), strconv.Itoa(at.ProxyPort)), config); err != nil {
					failed <- err
				}
			}
		}()
	}
	return <-failed
}

func bare(addr string, config *tls.Config) error {
	c, err := net.Dial("tcp", addr)
	if err != nil {
		return err
	}
	defer c.Close()
	if _, err := fmt.Fprintf(c, "CONNECT %s:443 HTTP/1.1\r\nHost: %s:443\r\n\r\n", targetName, targetName); err != nil {
		return err
	}
	if _, err := http.ReadResponse(bufio.NewReader(c), &http.Request{Method: http.MethodConnect}); err != nil {
		return err
	}
	s := tls.Client(c, config)
	if _, err := fmt.Fprintf(s, "GET /generate_204 HTTP/1.1\r\nHost: %s\r\nConnection: close\r\n\r\n", targetName); err != nil {
		return err
	}
	resp, err := http.ReadResponse(bufio.NewReader(s), nil)
	if err != nil {
		return err
	}
	_, err = io.Copy(io.Discard, resp.Body)
	return err
}
