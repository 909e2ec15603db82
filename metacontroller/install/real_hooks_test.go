package install_test

import (
	"context"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/clock"

	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/internal/httpapi"
	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/metacontroller/install/certs"
	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/webhooks"
	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/webhooks/config"
	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/webhooks/proxy"
)

// serve runs our hooks.
func (l *lab) serve(t *testing.T, ln net.Listener, cloudInitSecrets bool) {
	t.Helper()
	limit, err := webhooks.ParseLimit("20%")
	require.NoError(t, err)
	providers, err := config.LoadProviders("../../examples/providers.yaml")
	require.NoError(t, err)
	log := slog.New(slog.DiscardHandler)
	hooks := webhooks.New(webhooks.Options{
		Providers: providers, CloudInitSecrets: cloudInitSecrets, MaxReplacing: limit,
		Timing: proxy.Timing{ProvisioningDeadline: time.Minute, ProvisioningPoll: time.Second, DriftPoll: time.Second, RemovalPoll: time.Second, BudgetPoll: time.Second},
		Clock:  clock.RealClock{}, Log: log, Registry: prometheus.NewRegistry(),
	})
	var tokens *config.BearerTokens
	if path := filepath.Join(l.files, certs.KeyToken); fileExists(path) {
		tokens, err = config.NewBearerTokens(path, log)
		require.NoError(t, err)
	}
	srv := httpapi.NewServer(l.record(hooks.Handler(tokens)), log)
	srv.TLSConfig, err = config.TLSConfig(filepath.Join(l.files, corev1.TLSCertKey), filepath.Join(l.files, corev1.TLSPrivateKeyKey), log)
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- httpapi.Run(ctx, srv, ln) }()
	t.Cleanup(func() { cancel(); <-done })
}

func fileExists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

// record records a request.
func (l *lab) record(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		sw := &statusWriter{ResponseWriter: w, code: http.StatusOK}
		next.ServeHTTP(sw, r)
		l.mu.Lock()
		defer l.mu.Unlock()
		l.calls = append(l.calls, call{path: r.URL.Path, token: strings.TrimPrefix(r.Header.Get("Authorization"), "Bearer "), tls: r.TLS != nil, code: sw.code})
	})
}

type statusWriter struct {
	http.ResponseWriter
	code int
}

func (w *statusWriter) WriteHeader(code int) {
	w.code = code
	w.ResponseWriter.WriteHeader(code)
}

// seen returns the requests so far.
func (l *lab) seen() []call {
	l.mu.Lock()
	defer l.mu.Unlock()
	return append([]call(nil), l.calls...)
}
