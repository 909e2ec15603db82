package hooktest

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"path"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/types"

	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/api/v1alpha1"
	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/metacontroller"
)

// trivial are hooks without decisions: they fill names into the children that our hooks return, and
// set the phase of the Proxy.
type trivial struct {
	pod, probe string
}

// Placeholders in the children's text.
const (
	sampleName = "sample-proxy"
	sampleUID  = "11111111-2222-3333-4444-555555555555"
	samplePod  = "66666666-7777-8888-9999-000000000000"
	sampleIP   = "10.255.255.254"
)

// newTrivial takes the children from ours.
func newTrivial(t testing.TB, ours http.Handler) *trivial {
	t.Helper()
	running := fmt.Sprintf(`{"default/%s":{"apiVersion":"v1","kind":"Pod","metadata":{"name":%[1]q,"namespace":"default","uid":%q},"status":{"phase":"Running","podIP":%q}}}`,
		v1alpha1.InstanceName(sampleUID), samplePod, sampleIP)
	none, both := childrenFor(t, ours, `{}`), childrenFor(t, ours, running)
	require.Len(t, none, 1)
	require.Len(t, both, 2)
	return &trivial{pod: string(none[0]), probe: string(both[1])}
}

// childrenFor are the children that hooks return when they observe those Pods.
func childrenFor(t testing.TB, hooks http.Handler, pods string) []json.RawMessage {
	t.Helper()
	parent := fmt.Sprintf(`{"apiVersion":"crawl.example.com/v1alpha1","kind":"Proxy","metadata":{"name":%q,"namespace":"default","uid":%q,"generation":1},"spec":{"mode":"Managed","provider":%q}}`,
		sampleName, sampleUID, provider)
	body := fmt.Sprintf(`{"controller":{},"parent":%s,"children":{"Pod.v1":%s,"ProxyProbe.crawl.example.com/v1alpha1":{}},"related":{},"finalizing":false}`, parent, pods)
	r := httptest.NewRequest(http.MethodPost, "/hooks/sync", strings.NewReader(body))
	r.Header.Set("Content-Type", "application/json")
	w := httptest.NewRecorder()
	hooks.ServeHTTP(w, r)
	require.Equal(t, http.StatusOK, w.Code, w.Body)
	var answer struct{ Children []json.RawMessage }
	require.NoError(t, json.Unmarshal(w.Body.Bytes(), &answer))
	return answer.Children
}

// trivialRequest is the part of a request that a trivial hook reads.
type trivialRequest struct {
	Parent struct {
		Metadata struct{ Name, UID string }
	}
	Children struct {
		Pods map[string]struct {
			Metadata struct{ UID string }
			Status   struct{ PodIP string }
		} `json:"Pod.v1"`
		Probes map[string]struct {
			Status struct{ Verdict string }
		} `json:"ProxyProbe.crawl.example.com/v1alpha1"`
	}
}

// ServeHTTP implements http.Handler.
func (h *trivial) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", "application/json")
	if path.Base(r.URL.Path) == metacontroller.HookCustomize {
		_, _ = w.Write([]byte(`{"relatedResources":[]}`))
		return
	}
	var request trivialRequest
	if err := json.NewDecoder(r.Body).Decode(&request); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	var out bytes.Buffer
	phase, children := h.decide(&request)
	fmt.Fprintf(&out, `{"status":{"phase":%q},"children":[%s],"resyncAfterSeconds":0,"finalized":false}`, phase, children)
	_, _ = w.Write(out.Bytes())
}

func (h *trivial) decide(r *trivialRequest) (phase, children string) {
	names := []string{
		sampleName, r.Parent.Metadata.Name, sampleUID, r.Parent.Metadata.UID,
		v1alpha1.InstanceName(sampleUID), v1alpha1.InstanceName(types.UID(r.Parent.Metadata.UID)),
	}
	phase, children = "Provisioning", h.pod
	for _, pod := range r.Children.Pods {
		if pod.Status.PodIP != "" {
			names = append(names, samplePod, pod.Metadata.UID, sampleIP, pod.Status.PodIP)
			phase, children = "Probing", h.pod+","+h.probe
		}
	}
	for _, probe := range r.Children.Probes {
		if probe.Status.Verdict == string(v1alpha1.VerdictHealthy) {
			phase = "Ready"
		}
	}
	return phase, strings.NewReplacer(names...).Replace(children)
}
