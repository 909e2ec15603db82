package bench

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"sync"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/scheme"

	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/api/v1alpha1"
)

// standIn is as much of an API server as a prober needs: the ProxyProbes, listed
// as a stream, writes of status, which are counted and forgotten, and one Lease.
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

// managedFields are as an API server keeps them.
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
