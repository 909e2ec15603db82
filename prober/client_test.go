package prober

import (
	"context"
	"encoding/json"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"

	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/api/v1alpha1"
	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/internal/program/programtest"
)

// clientOf returns a Client of a server with this handler.
func clientOf(t *testing.T, h http.HandlerFunc) *Client {
	t.Helper()
	srv := httptest.NewServer(h)
	t.Cleanup(srv.Close)
	c, err := NewClient(&rest.Config{Host: srv.URL, ContentConfig: rest.ContentConfig{ContentType: "application/json"}})
	require.NoError(t, err)
	return c
}

func answerJSON(w http.ResponseWriter, status int, v any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(v)
}

func TestPatchStatusIsBoundToTheUID(t *testing.T) {
	var method, path, kind string
	var body []byte
	c := clientOf(t, func(w http.ResponseWriter, r *http.Request) {
		method, path, kind = r.Method, r.URL.Path, r.Header.Get("Content-Type")
		body, _ = io.ReadAll(r.Body)
		stored := proxyProbeOf("a")
		stored.TypeMeta = metav1.TypeMeta{APIVersion: v1alpha1.GroupVersion().String(), Kind: "ProxyProbe"}
		stored.ResourceVersion = "7"
		answerJSON(w, http.StatusOK, stored)
	})
	latency := int64(40)
	st := v1alpha1.ProxyProbeStatus{InstanceID: "i", Verdict: healthy, Reason: "ProbeSucceeded", LatencyMillis: &latency, LastProbeTime: at(0), ObservedGeneration: 3}
	version, err := c.PatchStatus(t.Context(), keyOf(proxyProbeOf("a")), "uid-a", st)
	require.NoError(t, err)
	assert.Equal(t, "7", version)
	assert.Equal(t, "PATCH", method)
	assert.Equal(t, "/apis/crawl.example.com/v1alpha1/namespaces/crawl/proxyprobes/a/status", path)
	assert.Equal(t, "application/json-patch+json", kind)
	assert.JSONEq(t, `[
		{"op": "test", "path": "/metadata/uid", "value": "uid-a"},
		{"op": "add", "path": "/status", "value": {
			"instanceID": "i", "verdict": "Healthy", "reason": "ProbeSucceeded", "latencyMillis": 40,
			"lastProbeTime": "2026-11-01T12:00:00Z", "observedGeneration": 3}}
	]`, string(body))
}

func TestPatchStatusReportsRefusals(t *testing.T) {
	c := clientOf(t, func(w http.ResponseWriter, _ *http.Request) {
		answerJSON(w, http.StatusUnprocessableEntity, metav1.Status{TypeMeta: metav1.TypeMeta{Kind: "Status", APIVersion: "v1"}, Status: "Failure", Reason: metav1.StatusReasonInvalid, Code: 422, Message: "test failed"})
	})
	_, err := c.PatchStatus(t.Context(), keyOf(proxyProbeOf("a")), "uid-a", v1alpha1.ProxyProbeStatus{})
	assert.ErrorContains(t, err, "patch the status of ProxyProbe crawl/a with UID uid-a: test failed")
}

func TestListWatchSpeaksTypedObjects(t *testing.T) {
	for namespace, path := range map[string]string{
		"":      "/apis/crawl.example.com/v1alpha1/proxyprobes",
		"crawl": "/apis/crawl.example.com/v1alpha1/namespaces/crawl/proxyprobes",
	} {
		p := proxyProbeOf("a")
		p.TypeMeta = metav1.TypeMeta{APIVersion: v1alpha1.GroupVersion().String(), Kind: "ProxyProbe"}
		c := clientOf(t, func(w http.ResponseWriter, r *http.Request) {
			assert.Equal(t, path, r.URL.Path)
			assert.Equal(t, "7", r.URL.Query().Get("resourceVersion"))
			if r.URL.Query().Get("watch") == "true" {
				answerJSON(w, http.StatusOK, map[string]any{"type": "ADDED", "object": p})
				return
			}
			answerJSON(w, http.StatusOK, v1alpha1.ProxyProbeList{
				TypeMeta: metav1.TypeMeta{APIVersion: v1alpha1.GroupVersion().String(), Kind: "ProxyProbeList"},
				Items:    []v1alpha1.ProxyProbe{*p},
			})
		})
		lw := cache.ToListerWatcherWithContext(c.ListWatch(namespace, quiet()))
		list, err := lw.ListWithContext(t.Context(), metav1.ListOptions{ResourceVersion: "7"})
		require.NoError(t, err)
		require.Len(t, list.(*v1alpha1.ProxyProbeList).Items, 1)
		assert.Equal(t, p.Spec, list.(*v1alpha1.ProxyProbeList).Items[0].Spec)
		w, err := lw.WatchWithContext(t.Context(), metav1.ListOptions{ResourceVersion: "7"})
		require.NoError(t, err)
		event := <-w.ResultChan()
		w.Stop()
		assert.Equal(t, watch.Added, event.Type)
		assert.Equal(t, types.UID("uid-a"), event.Object.(*v1alpha1.ProxyProbe).UID)
	}
}

func TestListAndWatchFailuresAreLogged(t *testing.T) {
	var out programtest.Output
	c := clientOf(t, func(w http.ResponseWriter, _ *http.Request) {
		answerJSON(w, http.StatusForbidden, metav1.Status{TypeMeta: metav1.TypeMeta{Kind: "Status", APIVersion: "v1"}, Status: "Failure", Reason: metav1.StatusReasonForbidden, Code: 403, Message: "no role"})
	})
	lw := cache.ToListerWatcherWithContext(c.ListWatch("", slog.New(slog.NewTextHandler(&out, nil))))
	_, err := lw.ListWithContext(t.Context(), metav1.ListOptions{})
	require.ErrorContains(t, err, "no role")
	_, err = lw.WatchWithContext(t.Context(), metav1.ListOptions{})
	require.ErrorContains(t, err, "no role")
	assert.Contains(t, out.String(), `"cannot read the ProxyProbes, will retry" verb=list`)
	assert.Contains(t, out.String(), `"cannot read the ProxyProbes, will retry" verb=watch`)

	shown := len(out.String())
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	_, err = lw.ListWithContext(ended, metav1.ListOptions{})
	require.Error(t, err)
	assert.Len(t, out.String(), shown, "the end of the process is no failure")
}

func TestNewClientRejectsAnInvalidConfiguration(t *testing.T) {
	_, err := NewClient(&rest.Config{Host: "http://[::1"})
	assert.ErrorContains(t, err, "make a client for ProxyProbes")
}
