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
	"sync"
	"sync/atomic"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/scheme"

	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/api/v1alpha1"
)

const (
	// dirEnv is the folder that the processes share, with settings and certificates.
	dirEnv = "PX_BENCH_DIR"
	// targetName is the host of the probe URL. It has no address.
	targetName = "target.invalid"
	// rigPatience ends idle connections.
	rigPatience = time.Minute
)

// settings of a run.
type settings struct {
	Proxies  int
	Interval time.Duration
	Workers  int
	Fresh    bool // no proxy has a verdict yet
}

// addresses of the rig.
type addresses struct {
	ProxyPort int
	API       string
}

// counts are the requests and connections that the rig received.
type counts struct {
	Connects, Handshakes, Resumed, Requests, Reused, StatusWrites int64
	// Probed counts the proxies with a request, Most the requests of the busiest one.
	Probed, Most int64
}

// proxyHost is the loopback address of proxy i.
func proxyHost(i int) string { return fmt.Sprintf("127.%d.%d.%d", 1+i>>16, i>>8&255, i&255) }

// proxyIndex is the inverse of proxyHost.
func proxyIndex(ip net.IP) int {
	ip = ip.To4()
	return int(ip[1]-1)<<16 | int(ip[2])<<8 | int(ip[3])
}

// rig is all proxies on one port, and their target. Each proxy passes the tunnel to the
// target within the process.
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
	// Tickets are on, as with most targets, so that resumed sessions are counted.
	r := &rig{settings: s, tls: &tls.Config{Certificates: []tls.Certificate{cert}}, perProxy: make([]atomic.Int64, s.Proxies)}
	proxies, err := net.Listen("tcp4", ":0") // listens on all addresses, used on loopback only
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

// answer serves requests until the client closes the connection.
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

// writeJSON creates a file atomically.
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

// standIn is a stand-in for the API server: it lists ProxyProbes as a stream, counts
// writes of status without storing them, and has one Lease.
type standIn struct {
	rig  *rig
	port int

	mu    sync.Mutex
	lease *coordinationv1.Lease
}

func newStandIn(r *rig, port int) http.Handler {
	s := &standIn{rig: r, port: port}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /counts", func(w http.ResponseWriter, _ *http.Request) { _ = json.NewEncoder(w).Encode(r.counts()) })
	mux.HandleFunc("GET /apis/crawl.example.com/v1alpha1/proxyprobes", s.watch)
	mux.HandleFunc("PATCH /apis/crawl.example.com/v1alpha1/namespaces/{namespace}/proxyprobes/{name}/status", s.write)
	mux.HandleFunc("GET /apis/coordination.k8s.io/v1/namespaces/{namespace}/leases/{name}", s.getLease)
	mux.HandleFunc("POST /apis/coordination.k8s.io/v1/namespaces/{namespace}/leases", s.putLease)
	mux.HandleFunc("PUT /apis/coordination.k8s.io/v1/namespaces/{namespace}/leases/{name}", s.putLease)
	return mux
}

func (s *standIn) watch(w http.ResponseWriter, req *http.Request) {
	w.Header().Set("Content-Type", "application/json")
	if req.URL.Query().Get("sendInitialEvents") != "true" {
		http.Error(w, "this stand-in lists by watching alone", http.StatusBadRequest)
		return
	}
	out := json.NewEncoder(w)
	for i := range s.rig.settings.Proxies {
		if out.Encode(map[string]any{"type": "ADDED", "object": s.probe(i)}) != nil {
			return
		}
	}
	end := v1alpha1.ProxyProbe{TypeMeta: probeKind()}
	end.ResourceVersion, end.Annotations = "2", map[string]string{metav1.InitialEventsAnnotationKey: "true"}
	_ = out.Encode(map[string]any{"type": "BOOKMARK", "object": end})
	w.(http.Flusher).Flush()
	<-req.Context().Done()
}

// managedFields are typical of the API server.
const managedFields = `{"f:metadata":{"f:annotations":{"f:metacontroller.k8s.io/last-applied-configuration":{}},"f:ownerReferences":{"k:{\"uid\":\"00000000-9999-4222-8333-444455556666\"}":{}}},` +
	`"f:spec":{"f:healthCheck":{"f:expectedStatusCodes":{},"f:failureThreshold":{},"f:interval":{},"f:probeURL":{},"f:successThreshold":{},"f:timeout":{}},"f:host":{},"f:instanceID":{},"f:port":{}}}`

func probeKind() metav1.TypeMeta {
	return metav1.TypeMeta{APIVersion: v1alpha1.GroupVersion().String(), Kind: "ProxyProbe"}
}

func (s *standIn) probe(i int) v1alpha1.ProxyProbe {
	hc := (*v1alpha1.HealthCheck)(nil).OrDefault()
	hc.ProbeURL = "https://" + targetName + "/generate_204"
	hc.Interval = metav1.Duration{Duration: s.rig.settings.Interval}
	name, controls := fmt.Sprintf("proxy-%05d", i), true
	p := v1alpha1.ProxyProbe{TypeMeta: probeKind()}
	p.Namespace, p.Name, p.UID = "crawl", name, types.UID(fmt.Sprintf("%08d-1111-4222-8333-444455556666", i))
	p.ResourceVersion, p.Generation = "1", 1
	p.OwnerReferences = []metav1.OwnerReference{{
		APIVersion: v1alpha1.GroupVersion().String(), Kind: "Proxy", Name: name, Controller: &controls,
		UID: types.UID(fmt.Sprintf("%08d-9999-4222-8333-444455556666", i)),
	}}
	p.ManagedFields = []metav1.ManagedFieldsEntry{{
		Manager: "metacontroller", Operation: metav1.ManagedFieldsOperationApply, APIVersion: v1alpha1.GroupVersion().String(), FieldsType: "FieldsV1",
		FieldsV1: metav1.NewFieldsV1(managedFields),
	}}
	p.Spec = v1alpha1.ProxyProbeSpec{InstanceID: "instance-" + name, Host: proxyHost(i), Port: int32(s.port), HealthCheck: &hc}
	if s.rig.settings.Fresh {
		return p
	}
	latency, then := int64(3), metav1.NewTime(time.Now().Add(-time.Hour).Truncate(time.Second))
	p.Status = v1alpha1.ProxyProbeStatus{
		InstanceID: p.Spec.InstanceID, Verdict: v1alpha1.VerdictHealthy, Reason: "ProbeSucceeded", LatencyMillis: &latency,
		LastTransitionTime: &then, LastProbeTime: &then, ObservedGeneration: 1,
	}
	return p
}

func (s *standIn) write(w http.ResponseWriter, req *http.Request) {
	_, _ = io.Copy(io.Discard, req.Body)
	s.rig.writes.Add(1)
	w.Header().Set("Content-Type", "application/json")
	p := v1alpha1.ProxyProbe{TypeMeta: probeKind()}
	p.Namespace, p.Name, p.ResourceVersion = req.PathValue("namespace"), req.PathValue("name"), "3"
	_ = json.NewEncoder(w).Encode(p)
}

func (s *standIn) getLease(w http.ResponseWriter, _ *http.Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	w.Header().Set("Content-Type", "application/json")
	if s.lease == nil {
		w.WriteHeader(http.StatusNotFound)
		_, _ = io.WriteString(w, `{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"NotFound","code":404}`)
		return
	}
	_ = json.NewEncoder(w).Encode(s.lease)
}

func (s *standIn) putLease(w http.ResponseWriter, req *http.Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	w.Header().Set("Content-Type", "application/json")
	body, _ := io.ReadAll(req.Body)
	lease := &coordinationv1.Lease{}
	if _, _, err := scheme.Codecs.UniversalDeserializer().Decode(body, nil, lease); err != nil {
		http.Error(w, err.Error(), http.StatusUnsupportedMediaType)
		return
	}
	lease.TypeMeta = metav1.TypeMeta{APIVersion: "coordination.k8s.io/v1", Kind: "Lease"}
	s.lease = lease
	_ = json.NewEncoder(w).Encode(lease)
}
