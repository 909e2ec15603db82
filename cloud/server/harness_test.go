package server

import (
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	"k8s.io/apimachinery/pkg/types"

	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/api/adapter"
	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/api/v1alpha1"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func path() string { return "/v1/instances/gcp-eu/" + v1alpha1.InstanceName(types.UID(uid)) }

// fakeBackend returns the same from every call.
type fakeBackend struct {
	out   adapter.Instance
	err   error
	panic bool
	got   []string
}

func (f *fakeBackend) Put(provider, name string, req adapter.PutRequest) (adapter.Instance, error) {
	if f.panic {
		panic("CANARY")
	}
	f.got = append(f.got, "put "+provider+" "+name+" "+req.UID)
	return f.out, f.err
}

func (f *fakeBackend) Delete(provider, name, uid, providerID string) (adapter.Instance, error) {
	f.got = append(f.got, "delete "+provider+" "+name+" "+uid+" "+providerID)
	return f.out, f.err
}

func (f *fakeBackend) List() adapter.List {
	return adapter.List{Providers: []adapter.Provider{}, Instances: []adapter.ListedInstance{}}
}

// counted records the counted responses.
type counted struct {
	mu      sync.Mutex
	answers []string
}

func (c *counted) Answered(method string, status int, _ time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.answers = append(c.answers, fmt.Sprintf("%s %d", method, status))
}

func newServer(b Backend) (*Server, *counted) {
	c := &counted{}
	s := New(func() error { return nil }, 1500*time.Millisecond, c.Answered, slog.New(slog.DiscardHandler))
	if b != nil {
		s.Lead(b)
	}
	return s, c
}

func body(t testing.TB, change func(*adapter.PutRequest)) string {
	t.Helper()
	req := adapter.PutRequest{UID: uid, Namespace: "crawl", Proxy: "a", SpecHash: "v1-0a", Port: 3128}
	if change != nil {
		change(&req)
	}
	text, err := json.Marshal(req)
	require.NoError(t, err)
	return string(text)
}

func do(s *Server, method, target, body string) *httptest.ResponseRecorder {
	r := httptest.NewRequest(method, target, strings.NewReader(body))
	r.Header.Set("Content-Type", "application/json; charset=utf-8")
	rec := httptest.NewRecorder()
	s.Handler().ServeHTTP(rec, r)
	return rec
}
