// Package ops serves /livez, /readyz and /metrics of a process, and /debug/ to callers on
// the same machine. It needs no authentication and shows no secrets.
package ops

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/netip"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/internal/httpapi"
	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/internal/version"
)

// Server is the ops endpoint of one process.
type Server struct {
	// Addr to listen on, such as ":9090".
	Addr string
	// Registry whose metrics are served.
	Registry *prometheus.Registry
	// Ready returns nil when the process can work, otherwise an error that names what it
	// waits for. It must not depend on clouds or probe targets.
	Ready func() error
	// Debug serves /debug/ to callers on this machine only. nil serves none.
	Debug http.Handler
	// Log receives server errors.
	Log *slog.Logger
}

// NewRegistry returns a registry with the Go runtime's, the process's and the
// build's metrics in it.
func NewRegistry() *prometheus.Registry {
	reg := prometheus.NewRegistry()
	reg.MustRegister(
		collectors.NewGoCollector(),
		collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}),
		version.Get().Collector(),
	)
	return reg
}

// Run serves until ctx ends.
func (s *Server) Run(ctx context.Context) error {
	ln, err := net.Listen("tcp", s.Addr)
	if err != nil {
		return fmt.Errorf("--ops-addr %s: %w", s.Addr, err)
	}
	s.Log.Info("ops endpoint listening", "addr", ln.Addr().String(), "version", version.Get().Version)
	return httpapi.Run(ctx, httpapi.NewServer(s.Handler(), s.Log), ln)
}

// Handler serves /livez, /readyz by Ready, and /metrics.
func (s *Server) Handler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /livez", func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprintln(w, "ok")
	})
	mux.HandleFunc("GET /readyz", func(w http.ResponseWriter, _ *http.Request) {
		if err := s.Ready(); err != nil {
			http.Error(w, "not ready: "+err.Error(), http.StatusServiceUnavailable)
			return
		}
		fmt.Fprintln(w, "ok")
	})
	if s.Debug != nil {
		mux.Handle("GET /debug/", localOnly(s.Debug))
	}
	mux.Handle("GET /metrics", promhttp.HandlerFor(s.Registry, promhttp.HandlerOpts{
		ErrorLog: slog.NewLogLogger(s.Log.Handler(), slog.LevelWarn),
	}))
	return mux
}

// localOnly rejects callers from other machines. kubectl port-forward connects from the
// Pod itself.
func localOnly(h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		from, err := netip.ParseAddrPort(r.RemoteAddr)
		if err != nil || !from.Addr().Unmap().IsLoopback() {
			http.Error(w, "only for callers on this machine: use kubectl port-forward", http.StatusForbidden)
			return
		}
		h.ServeHTTP(w, r)
	})
}
