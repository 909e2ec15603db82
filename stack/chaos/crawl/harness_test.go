package crawl

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"net/url"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// second is what the tests take for one.
const second = 20 * time.Millisecond

// api is a discovery that grants whatever it is asked for, on one proxy, and has
// a mishap every now and then.
type api struct {
	proxy netip.AddrPort

	mu     sync.Mutex
	calls  int
	leases map[string]time.Time // when they end
	byKey  map[string]string
	token  uint64
}

func startAPI(t *testing.T, proxy string) *httptest.Server {
	t.Helper()
	addr, err := netip.ParseAddrPort(proxy)
	require.NoError(t, err)
	a := &api{proxy: addr, leases: map[string]time.Time{}, byKey: map[string]string{}}
	mux := http.NewServeMux()
	mux.HandleFunc("POST /v1/leases", a.acquire)
	mux.HandleFunc("GET /v1/leases/{id}", a.get)
	mux.HandleFunc("POST /v1/leases/{id}/renew", a.renew)
	mux.HandleFunc("POST /v1/leases/{id}/report", a.report)
	mux.HandleFunc("DELETE /v1/leases/{id}", a.release)
	mux.HandleFunc("GET /v1/proxies", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("ETag", `"1"`)
		fmt.Fprint(w, `{"proxies":[],"count":0}`)
	})
	server := httptest.NewServer(a.mishaps(mux))
	t.Cleanup(server.Close)
	return server
}

func (a *api) mishaps(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		a.mu.Lock()
		defer a.mu.Unlock()
		a.calls++
		switch {
		case r.Header.Get("Authorization") != "Bearer secret":
			problem(w, http.StatusUnauthorized, "unauthorized", 0)
		case a.calls%13 == 0:
			problem(w, http.StatusServiceUnavailable, "store_unavailable", 1)
		case a.calls%17 == 0:
			next.ServeHTTP(httptest.NewRecorder(), r) // done, and not answered
			panic(http.ErrAbortHandler)
		case a.calls%19 == 0:
			fmt.Fprint(w, "<html>")
		default:
			next.ServeHTTP(w, r)
		}
	})
}

func problem(w http.ResponseWriter, status int, code string, retryAfter int) {
	if retryAfter > 0 {
		w.Header().Set("Retry-After", strconv.Itoa(retryAfter))
	}
	w.WriteHeader(status)
	fmt.Fprintf(w, `{"error":%q,"detail":"because","considered":0}`, code)
}

func (a *api) acquire(w http.ResponseWriter, r *http.Request) {
	var body acquireBody
	if err := json.NewDecoder(r.Body).Decode(&body); err != nil || body.TTLSeconds < 1 {
		problem(w, http.StatusBadRequest, "invalid_request", 0)
		return
	}
	if a.calls%7 == 0 {
		problem(w, http.StatusConflict, "no_match", 1)
		return
	}
	key := r.Header.Get("Idempotency-Key")
	id, replayed := a.byKey[key]
	if !replayed || key == "" {
		a.token++
		id = fmt.Sprintf("L%d", a.token)
		a.byKey[key] = id
		a.leases[id] = time.Now().Add(time.Duration(body.TTLSeconds) * second)
	}
	w.WriteHeader(http.StatusCreated)
	a.answer(w, id)
}

func (a *api) answer(w http.ResponseWriter, id string) {
	_ = json.NewEncoder(w).Encode(map[string]any{
		"leaseID": id, "expiresAt": a.leases[id], "fencingToken": a.token,
		"proxy":    map[string]any{"namespace": "default", "name": "a", "host": a.proxy.Addr().String(), "port": a.proxy.Port()},
		"proxyURL": (&url.URL{Scheme: "http", Host: a.proxy.String()}).String(),
	})
}

func (a *api) running(w http.ResponseWriter, id string) bool {
	until, known := a.leases[id]
	switch {
	case !known:
		problem(w, http.StatusNotFound, "unknown_lease", 0)
	case time.Now().After(until):
		w.WriteHeader(http.StatusGone)
		fmt.Fprint(w, `{"error":"lease_gone","reason":"expired"}`)
	default:
		return true
	}
	return false
}

func (a *api) get(w http.ResponseWriter, r *http.Request) {
	if id := r.PathValue("id"); a.running(w, id) {
		a.answer(w, id)
	}
}

func (a *api) renew(w http.ResponseWriter, r *http.Request) {
	if id := r.PathValue("id"); a.running(w, id) {
		a.leases[id] = a.leases[id].Add(10 * second)
		a.answer(w, id)
	}
}

func (a *api) report(w http.ResponseWriter, r *http.Request) {
	if _, known := a.leases[r.PathValue("id")]; !known {
		problem(w, http.StatusNotFound, "unknown_lease", 0)
		return
	}
	w.WriteHeader(http.StatusNoContent)
}

func (a *api) release(w http.ResponseWriter, r *http.Request) {
	delete(a.leases, r.PathValue("id"))
	w.WriteHeader(http.StatusNoContent)
}
