package main

import (
	"crypto/rand"
	"encoding/base64"
	"encoding/json"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/api/v1alpha1"
)

// hunt searches for secrets in places where they must not be.
type hunt struct {
	*running
	canaries []string
}

func newHunt(r *running) *hunt { return &hunt{running: r} }

// canary returns a new secret to search for.
func (h *hunt) canary() string {
	c := "canary" + rand.Text()
	h.canaries = append(h.canaries, c)
	return c
}

// findNothing searches every file of the stack except the API server's store, all objects except
// the Secrets themselves, and all metrics.
func (h *hunt) findNothing() {
	h.t.Helper()
	require.True(h.t, h.in(h.objects("v1", "secrets")), "they are there, and can be found")
	for _, resource := range []string{"v1/pods", "v1/events", v1alpha1.GroupVersion().String() + "/proxies", v1alpha1.GroupVersion().String() + "/proxyprobes", "coordination.k8s.io/v1/leases"} {
		at := strings.LastIndex(resource, "/")
		text := h.objects(resource[:at], resource[at+1:])
		assert.NotEmpty(h.t, text, resource)
		assert.False(h.t, h.in(text), "a secret is in %s", resource)
	}
	for name, url := range h.stack.MetricsURLs() {
		text, err := get(h.t.Context(), url, "")
		if assert.NoError(h.t, err, name) {
			assert.Contains(h.t, string(text), "# TYPE", name)
			assert.False(h.t, h.in(string(text)), "a secret is in the metrics of %s", name)
		}
	}
	text, err := h.core.CoreV1().RESTClient().Get().AbsPath("/metrics").DoRaw(h.t.Context())
	require.NoError(h.t, err)
	assert.False(h.t, h.in(string(text)), "a secret is in the metrics of the API server")
	h.findNothingInFiles()
}

// objects are all objects of a resource, as text.
func (h *hunt) objects(apiVersion, resource string) string {
	h.t.Helper()
	gv, err := schema.ParseGroupVersion(apiVersion)
	require.NoError(h.t, err)
	list, err := h.api.Resource(gv.WithResource(resource)).List(h.t.Context(), metav1.ListOptions{})
	require.NoError(h.t, err)
	text, err := json.Marshal(list)
	require.NoError(h.t, err)
	return string(text)
}

func (h *hunt) findNothingInFiles() {
	h.t.Helper()
	logs := 0
	store := filepath.Join(h.stack.Folder(), "controlplane", "etcd")
	require.DirExists(h.t, store)
	err := filepath.WalkDir(h.stack.Folder(), func(path string, entry fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return nil // deleted meanwhile
		case path == store:
			return fs.SkipDir
		case !entry.Type().IsRegular():
			return nil
		}
		text, err := os.ReadFile(path)
		if err == nil && filepath.Ext(path) == ".log" && len(text) > 0 {
			logs++
		}
		assert.False(h.t, h.in(string(text)), "a secret is in %s", path)
		return nil
	})
	require.NoError(h.t, err)
	assert.Greater(h.t, logs, 5, "there were logs to look into")
}

// in reports whether a canary is in text, as it is or encoded as in a Secret.
func (h *hunt) in(text string) bool {
	for _, c := range h.canaries {
		encoded := strings.TrimRight(base64.StdEncoding.EncodeToString([]byte(c)), "=")
		if strings.Contains(text, c) || strings.Contains(text, encoded[:len(encoded)-1]) {
			return true
		}
	}
	return false
}
