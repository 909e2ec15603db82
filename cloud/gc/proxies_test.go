package gc

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/rest"
)

// apiServer serves lists of Proxies with n pages of one each, and the failAt-th
// request with 410, as for an expired continue token.
type apiServer struct {
	n, failAt int
	paths     []string
	queries   []url.Values
}

func (s *apiServer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.paths = append(s.paths, r.URL.Path)
	s.queries = append(s.queries, r.URL.Query())
	page := len(s.paths)
	w.Header().Set("Content-Type", "application/json")
	if page == s.failAt {
		w.WriteHeader(http.StatusGone)
		fmt.Fprint(w, `{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"Expired","message":"the continue token expired","code":410}`)
		return
	}
	list := metav1.PartialObjectMetadataList{TypeMeta: metav1.TypeMeta{Kind: "PartialObjectMetadataList", APIVersion: "meta.k8s.io/v1"}}
	if page < s.n {
		list.Continue = fmt.Sprint("after-", page)
	}
	list.Items = []metav1.PartialObjectMetadata{{ObjectMeta: metav1.ObjectMeta{UID: types.UID(fmt.Sprint(page)), DeletionTimestamp: &metav1.Time{}}}}
	_ = json.NewEncoder(w).Encode(list)
}

func (s *apiServer) start(t *testing.T, namespace string) APIServer {
	t.Helper()
	srv := httptest.NewServer(s)
	t.Cleanup(srv.Close)
	client, err := metadata.NewForConfig(&rest.Config{Host: srv.URL})
	require.NoError(t, err)
	return APIServer{Client: client, Namespace: namespace}
}

func TestUIDsReadsAllPages(t *testing.T) {
	s := &apiServer{n: 3}
	got, err := s.start(t, "").UIDs(t.Context())
	require.NoError(t, err)
	assert.Equal(t, map[string]bool{"1": true, "2": true, "3": true}, got, "those that are being deleted count")
	assert.Equal(t, "/apis/crawl.example.com/v1alpha1/proxies", s.paths[0])
	assert.Equal(t, url.Values{"limit": {"500"}}, s.queries[0], "no resource version: from the store, not from a cache")
	assert.Equal(t, "after-2", s.queries[2].Get("continue"))
}

func TestUIDsOfOneNamespace(t *testing.T) {
	s := &apiServer{n: 1}
	_, err := s.start(t, "crawl").UIDs(t.Context())
	require.NoError(t, err)
	assert.Equal(t, "/apis/crawl.example.com/v1alpha1/namespaces/crawl/proxies", s.paths[0])
}

func TestUIDsFailsWithAnExpiredPage(t *testing.T) {
	s := &apiServer{n: 3, failAt: 3}
	got, err := s.start(t, "").UIDs(t.Context())
	require.ErrorContains(t, err, "list Proxies: the continue token expired")
	assert.Nil(t, got)
}
