package bench

import (
	"bufio"
	"crypto/tls"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"sync/atomic"
	"time"
)

const (
	// dirEnv names the folder that the processes share, which holds settings and
	// certificates.
	dirEnv = "PX_BENCH_DIR"
	// targetName is what proxies are asked for. No resolver knows it.
	targetName = "target.invalid"
	// rigPatience ends connections that nobody uses any more.
	rigPatience = time.Minute
)

// settings of a run.
type settings struct {
	Proxies  int
	Interval time.Duration
	Workers  int
	Fresh    bool // no proxy has a verdict yet
}

// addresses that the rig got.
type addresses struct {
	ProxyPort int
	API       string
}

// counts are what the rig saw.
type counts struct {
	Connects, Handshakes, Resumed, Requests, Reused, StatusWrites int64
	// Probed is how many proxies had a request, Most is what the busiest had.
	Probed, Most int64
}

// proxyHost is the address of proxy i, one of its own on loopback.
func proxyHost(i int) string { return fmt.Sprintf("127.%d.%d.%d", 1+i>>16, i>>8&255, i&255) }

// proxyIndex is the inverse of proxyHost.
func proxyIndex(ip net.IP) int {
	ip = ip.To4()
	return int(ip[1]-1)<<16 | int(ip[2])<<8 | int(ip[3])
}

// rig is all proxies on one port, and their target: each proxy hands the tunnel
// to the target within the process, since only what the prober sees matters.
type rig struct {
	settings settings
	tls      *tls.Config
	perProxy []atomic.Int64

	connects, handshakes, resumed, requests, reused, writes atomic.Int64
}

func runRig(dir string) error {
	var s settings
	if err := readJSON(filepath.Join(dir, "settings.json"), &s); err != nil {
		return err
	}
	cert, err := tls.LoadX509KeyPair(filepath.Join(dir, "target.pem"), filepath.Join(dir, "target.key"))
	if err != nil {
		return err
	}
	// Tickets are on, as with most targets: whoever resumed a session would show.
	r := &rig{settings: s, tls: &tls.Config{Certificates: []tls.Certificate{cert}}, perProxy: make([]atomic.Int64, s.Proxies)}
	proxies, err := net.Listen("tcp4", ":0") // of all addresses, but serves loopback alone
	if err != nil {
		return err
	}
	api, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		return err
	}
	go func() { _ = http.Serve(api, newStandIn(r, proxies.Addr().(*net.TCPAddr).Port)) }()
	if err := writeJSON(filepath.Join(dir, "addresses.json"), addresses{proxies.Addr().(*net.TCPAddr).Port, api.Addr().String()}); err != nil {
		return err
	}
	for {
		c, err := proxies.Accept()
		if err != nil {
			return err
		}
		go r.serve(c)
	}
}

func (r *rig) serve(c net.Conn) {
	defer c.Close()
	if !c.RemoteAddr().(*net.TCPAddr).IP.IsLoopback() {
		return
	}
	_ = c.SetDeadline(time.Now().Add(rigPatience))
	proxy := proxyIndex(c.LocalAddr().(*net.TCPAddr).IP)
	req, err := http.ReadRequest(bufio.NewReaderSize(c, 1<<10))
	if err != nil || req.Method != http.MethodConnect || proxy >= len(r.perProxy) {
		return
	}
	r.connects.Add(1)
	if _, err := io.WriteString(c, "HTTP/1.1 200 Connection established\r\n\r\n"); err != nil {
		return
	}
	s := tls.Server(c, r.tls)
	if err := s.Handshake(); err != nil {
		return
	}
	r.handshakes.Add(1)
	if s.ConnectionState().DidResume {
		r.resumed.Add(1)
	}
	r.answer(s, proxy)
}

// answer serves requests for as long as the other side has some.
func (r *rig) answer(c net.Conn, proxy int) {
	br := bufio.NewReaderSize(c, 1<<10)
	for n := 0; ; n++ {
		req, err := http.ReadRequest(br)
		if err != nil {
			return
		}
		text := "HTTP/1.1 204 No Content\r\nDate: Sun, 01 Nov 2026 00:00:00 GMT\r\n\r\n"
		if req.Close {
			text = "HTTP/1.1 204 No Content\r\nDate: Sun, 01 Nov 2026 00:00:00 GMT\r\nConnection: close\r\n\r\n"
		}
		if _, err := io.WriteString(c, text); err != nil {
			return
		}
		r.requests.Add(1)
		r.perProxy[proxy].Add(1)
		if n > 0 {
			r.reused.Add(1)
		}
		if req.Close {
			return
		}
	}
}

func (r *rig) counts() counts {
	c := counts{
		Connects: r.connects.Load(), Handshakes: r.handshakes.Load(), Resumed: r.resumed.Load(),
		Requests: r.requests.Load(), Reused: r.reused.Load(), StatusWrites: r.writes.Load(),
	}
	for i := range r.perProxy {
		n := r.perProxy[i].Load()
		c.Most = max(c.Most, n)
		if n > 0 {
			c.Probed++
		}
	}
	return c
}

func readJSON(path string, into any) error {
	b, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	return json.Unmarshal(b, into)
}

// writeJSON makes a file that is whole as soon as it is there.
func writeJSON(path string, v any) error {
	b, err := json.Marshal(v)
	if err != nil {
		return err
	}
	if err := os.WriteFile(path+".new", b, 0o600); err != nil {
		return err
	}
	return os.Rename(path+".new", path)
}

func proxyURL(i, port int) string {
	return "http://" + net.JoinHostPort(proxyHost(i), strconv.Itoa(port))
}
