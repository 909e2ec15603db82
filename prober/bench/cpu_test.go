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
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/internal/process"
)

const (
	window  = 3 * time.Second
	settle  = 500 * time.Millisecond
	rounds  = 3
	workers = 32
)

// runner is one of the compared processes. Each runs as fast as it can while the others
// are stopped.
type runner struct {
	name       string
	process    *process.Process
	run, pause func()

	probes int64
	cpu    time.Duration
	wall   time.Duration
}

func (r *runner) perProbe() time.Duration { return r.cpu / time.Duration(max(r.probes, 1)) }

func (r *runner) measure(b *testing.B, sc *scene) {
	b.Helper()
	r.run()
	time.Sleep(settle)
	begin, before, used := time.Now(), sc.counts(b).Requests, cpu(b, r.process.PID())
	time.Sleep(window)
	r.cpu += cpu(b, r.process.PID()) - used
	r.probes += sc.counts(b).Requests - before
	r.wall += time.Since(begin)
	r.pause()
}

// stoppable is a process that probes unless it is stopped.
func stoppable(b *testing.B, name string, p *process.Process) *runner {
	b.Helper()
	r := &runner{name: name, process: p}
	r.run = func() { require.NoError(b, p.Signal(syscall.SIGCONT)) }
	r.pause = func() { require.NoError(b, p.Signal(syscall.SIGSTOP)) }
	r.pause()
	return r
}

// driven is blackbox_exporter, which probes on request.
func driven(b *testing.B, sc *scene) *runner {
	b.Helper()
	p, url := sc.blackbox(b)
	r := &runner{name: "blackbox_exporter", process: p}
	client := &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: sc.Workers}}
	b.Cleanup(client.CloseIdleConnections)
	var next atomic.Int64
	var wg sync.WaitGroup
	var stop atomic.Bool
	r.run = func() {
		stop.Store(false)
		for range sc.Workers {
			wg.Go(func() {
				for !stop.Load() {
					ask(client, fmt.Sprintf("%s/probe?module=m%d&target=https://%s/generate_204", url, int(next.Add(1))%sc.Proxies, targetName))
				}
			})
		}
	}
	r.pause = func() {
		stop.Store(true)
		wg.Wait()
	}
	return r
}

func ask(client *http.Client, url string) {
	if resp, err := client.Get(url); err == nil {
		_, _ = io.Copy(io.Discard, resp.Body)
		_ = resp.Body.Close()
	}
}

// BenchmarkCPUPerProbe compares the CPU time of one probe. Every process has one core
// and probes the same proxies as fast as it can. Requests that reach the target count.
func BenchmarkCPUPerProbe(b *testing.B) {
	for _, n := range []int{200, 10_000} {
		b.Run(fmt.Sprint(n), func(b *testing.B) { compare(b, n) })
	}
}

func compare(b *testing.B, proxies int) {
	sc := newScene(b, settings{Proxies: proxies, Interval: time.Millisecond, Workers: workers})
	peer := driven(b, sc)
	p, _ := sc.prober(b)
	ours := stoppable(b, "prober", p)
	floor := stoppable(b, "floor", startRole(b, sc.dir, "floor", "GOMAXPROCS=1"))
	for range rounds {
		for _, r := range []*runner{ours, floor, peer} {
			r.measure(b, sc)
		}
	}
	sc.fresh(b)
	for _, r := range []*runner{ours, floor, peer} {
		b.Logf("%-18s %6d proxies: %7.1f µs CPU per probe, %5.0f probes/s (%d probes)", r.name, proxies,
			float64(r.perProbe().Nanoseconds())/1e3, float64(r.probes)/r.wall.Seconds(), r.probes)
	}
	b.ReportMetric(float64(ours.perProbe())/float64(peer.perProbe()), "of-blackbox")
	b.ReportMetric(float64(ours.perProbe())/float64(floor.perProbe()), "of-floor")
	b.ReportMetric(float64(ours.probes)/ours.wall.Seconds(), "probes/s")
	b.ReportMetric(0, "ns/op")
}

// runFloor is the minimal probe in a loop: dial, CONNECT, TLS with the certificate
// verified, one request, with as many workers as the prober. No deadlines, no verdicts,
// no metrics.
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
	// The same key exchange as the prober's, so that only the loop around it differs.
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
