package standin

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"net/http"
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/utils/clock"
	kjson "sigs.k8s.io/json"

	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/metacontroller"
)

const (
	defaultTimeout = 10 * time.Second // of one hook call, if the manifest sets none
	maxAnswer      = 32 << 20         // limits the memory that one response takes
	maxQuoted      = 512              // how much of an error response goes into errors and Events
)

// busyError is a 429 response: retry after the delay, without backoff and without
// an Event. A missing or fractional Retry-After is a delay of 0: retry at once.
type busyError struct {
	hook  string
	after time.Duration
}

func (e *busyError) Error() string {
	return fmt.Sprintf("%s hook is busy, retry after %s", e.hook, e.after)
}

// hook calls one webhook.
type hook struct {
	name    string
	url     string
	client  *http.Client
	clock   clock.PassiveClock
	metrics *metrics
}

func newHook(name string, spec *metacontroller.Hook, transport http.RoundTripper, clk clock.PassiveClock, m *metrics) *hook {
	if spec == nil {
		return nil
	}
	timeout := defaultTimeout
	if spec.Webhook.Timeout != nil {
		timeout = spec.Webhook.Timeout.Duration
	}
	return &hook{
		name:    name,
		url:     spec.Webhook.URL,
		client:  &http.Client{Transport: transport, Timeout: timeout},
		clock:   clk,
		metrics: m,
	}
}

// call posts request and decodes the response into answer. Unknown and duplicate
// fields of the response are errors, and so is every status but 200; 429 is a
// *busyError.
func (h *hook) call(ctx context.Context, request, answer any) error {
	start := h.clock.Now()
	code, err := h.exchange(ctx, request, answer)
	h.metrics.observeCall(h.name, code, h.clock.Since(start))
	var busy *busyError
	if err != nil && !errors.As(err, &busy) {
		return fmt.Errorf("%s hook: %w", h.name, err)
	}
	return err
}

// exchange returns the status code of the response, 0 if there was none.
func (h *hook) exchange(ctx context.Context, request, answer any) (int, error) {
	body, err := json.Marshal(request)
	if err != nil {
		return 0, fmt.Errorf("encode request: %w", err)
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, h.url, bytes.NewReader(body))
	if err != nil {
		return 0, err
	}
	req.Header.Set("Content-Type", "application/json")
	resp, err := h.client.Do(req)
	if err != nil {
		return 0, err
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswer+1))
	switch {
	case resp.StatusCode == http.StatusTooManyRequests:
		return resp.StatusCode, &busyError{hook: h.name, after: retryAfter(resp.Header.Get("Retry-After"), h.clock.Now())}
	case err != nil:
		return resp.StatusCode, fmt.Errorf("read response: %w", err)
	case len(text) > maxAnswer:
		return resp.StatusCode, fmt.Errorf("the response is longer than %d bytes", maxAnswer)
	case resp.StatusCode != http.StatusOK:
		return resp.StatusCode, fmt.Errorf("status %d: %s", resp.StatusCode, text[:min(len(text), maxQuoted)])
	}
	strict, err := kjson.UnmarshalStrict(text, answer)
	if err := errors.Join(append(strict, err)...); err != nil {
		return resp.StatusCode, fmt.Errorf("decode response: %w", err)
	}
	return resp.StatusCode, nil
}

// retryAfter parses Retry-After as Metacontroller does: a date or whole seconds,
// and 0 for everything else, such as "1.5".
func retryAfter(header string, now time.Time) time.Duration {
	if at, err := time.Parse(time.RFC1123, header); err == nil {
		return time.Duration(math.Ceil(at.Sub(now).Seconds())) * time.Second
	}
	seconds, err := strconv.Atoi(header)
	if err != nil {
		return 0
	}
	return time.Duration(seconds) * time.Second
}

// metrics of the stand-in.
type metrics struct {
	calls    *prometheus.CounterVec
	duration *prometheus.HistogramVec
	syncs    *prometheus.CounterVec
}

// newMetrics registers the metrics with reg, if it is not nil.
func newMetrics(reg prometheus.Registerer) *metrics {
	m := &metrics{
		calls: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "proxy_operator_engine_hook_calls_total",
			Help: "Hook calls by hook and HTTP status code; code none: no response.",
		}, []string{"hook", "code"}),
		duration: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name:    "proxy_operator_engine_hook_duration_seconds",
			Help:    "Duration of hook calls by hook, including failed ones.",
			Buckets: []float64{.001, .005, .01, .05, .1, .5, 1, 5, 10},
		}, []string{"hook"}),
		syncs: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "proxy_operator_engine_syncs_total",
			Help: "Reconciles of parents by result: ok, busy (the hook returned 429), waiting (for related objects), error.",
		}, []string{"result"}),
	}
	if reg != nil {
		reg.MustRegister(m.calls, m.duration, m.syncs)
	}
	return m
}

func (m *metrics) observeCall(hook string, code int, took time.Duration) {
	label := "none"
	if code != 0 {
		label = strconv.Itoa(code)
	}
	m.calls.WithLabelValues(hook, label).Inc()
	m.duration.WithLabelValues(hook).Observe(took.Seconds())
}
