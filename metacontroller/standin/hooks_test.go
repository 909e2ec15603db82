package standin

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	testclock "k8s.io/utils/clock/testing"

	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/metacontroller"
)

func TestRetryAfter(t *testing.T) {
	for header, want := range map[string]time.Duration{
		"":                              0,
		"0":                             0,
		"1":                             time.Second,
		"30":                            30 * time.Second,
		"1.5":                           0,
		"soon":                          0,
		"-2":                            -2 * time.Second,
		"Sun, 29 Nov 2026 19:00:07 UTC": 7 * time.Second,
		"Sun, 29 Nov 2026 18:59:50 UTC": -10 * time.Second,
	} {
		require.Equal(t, want, retryAfter(header, start), header)
	}
}

func testHook(t *testing.T, toy *toyHook, timeout time.Duration) (*hook, *metrics) {
	t.Helper()
	m := newMetrics(prometheus.NewRegistry())
	transport := http.DefaultTransport.(*http.Transport).Clone()
	t.Cleanup(transport.CloseIdleConnections)
	spec := &metacontroller.Hook{Webhook: metacontroller.Webhook{URL: toy.URL + "/sync"}}
	if timeout > 0 {
		spec.Webhook.Timeout = &metav1.Duration{Duration: timeout}
	}
	return newHook("sync", spec, transport, testclock.NewFakeClock(start), m), m
}

func TestHookAnswers(t *testing.T) {
	tests := []struct {
		name  string
		reply reply
		want  string
		code  string
	}{
		{"a good one", reply{body: `{"status":{"n":1},"children":[{"apiVersion":"v1","kind":"Pod","metadata":{"name":"a"}}],"resyncAfterSeconds":1.5,"finalized":true}`}, "", "200"},
		{"null", reply{body: `null`}, "", "200"},
		{"an empty object", reply{body: `{}`}, "", "200"},
		{"an unknown field", reply{body: `{"status":{},"children":[],"resyncAfter":1}`}, `unknown field "resyncAfter"`, "200"},
		{"another case", reply{body: `{"Status":{},"children":[]}`}, `unknown field "Status"`, "200"},
		{"a repeated field", reply{body: `{"children":[],"children":[]}`}, `duplicate field "children"`, "200"},
		{"a child without kind", reply{body: `{"children":[{"apiVersion":"v1","metadata":{"name":"a"}}]}`}, "Kind", "200"},
		{"half an answer", reply{body: `{"status":`}, "decode response", "200"},
		{"nothing", reply{}, "decode response", "200"},
		{"two answers", reply{body: `{}{}`}, "decode response", "200"},
		{"a word as delay", reply{body: `{"resyncAfterSeconds":"1"}`}, "decode response", "200"},
		{"an error", reply{code: 500, body: "no such provider"}, "sync hook: status 500: no such provider", "500"},
		{"a success that is not 200", reply{code: 201, body: `{}`}, "status 201", "201"},
		{"a long error", reply{code: 400, body: strings.Repeat("x", 9000)}, "status 400", "400"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			toy := newToyHook(t)
			toy.on("sync", func(call) reply { return tt.reply })
			h, m := testHook(t, toy, 0)
			var answer metacontroller.Response
			err := h.call(t.Context(), map[string]any{}, &answer)
			if tt.want == "" {
				require.NoError(t, err)
			} else {
				require.ErrorContains(t, err, tt.want)
				require.Less(t, len(err.Error()), 1000, "fits an event")
			}
			require.EqualValues(t, 1, testutil.ToFloat64(m.calls.WithLabelValues("sync", tt.code)))
		})
	}
}

func TestHookAnswerIsDecoded(t *testing.T) {
	toy := newToyHook(t)
	toy.say("sync", `{"status":{"port":3128,"ratio":0.5},"children":[{"apiVersion":"v1","kind":"Pod","metadata":{"name":"a"}},null],"resyncAfterSeconds":1.5,"finalized":true}`)
	h, _ := testHook(t, toy, 0)
	var answer metacontroller.Response
	require.NoError(t, h.call(t.Context(), map[string]any{}, &answer))
	require.Equal(t, map[string]any{"port": int64(3128), "ratio": 0.5}, answer.Status, "whole numbers stay whole")
	require.Equal(t, "a", answer.Children[0].GetName())
	require.Nil(t, answer.Children[1])
	require.Equal(t, 1.5, answer.ResyncAfterSeconds)
	require.True(t, answer.Finalized)
}

func TestBusyHook(t *testing.T) {
	toy := newToyHook(t)
	toy.on("sync", func(call) reply {
		return reply{code: 429, header: map[string]string{"Retry-After": "7"}, body: "warming up"}
	})
	h, m := testHook(t, toy, 0)
	err := h.call(t.Context(), map[string]any{}, &metacontroller.Response{})
	var busy *busyError
	require.ErrorAs(t, err, &busy)
	require.Equal(t, 7*time.Second, busy.after)
	require.ErrorContains(t, err, "sync hook is busy, retry after 7s")
	require.EqualValues(t, 1, testutil.ToFloat64(m.calls.WithLabelValues("sync", "429")))
}

func TestHookTimeout(t *testing.T) {
	toy := newToyHook(t)
	release := make(chan struct{})
	defer close(release)
	toy.on("sync", func(call) reply { <-release; return reply{body: `{}`} })
	h, m := testHook(t, toy, 20*time.Millisecond)
	err := h.call(t.Context(), map[string]any{}, &metacontroller.Response{})
	require.ErrorContains(t, err, "Client.Timeout exceeded")
	require.EqualValues(t, 1, testutil.ToFloat64(m.calls.WithLabelValues("sync", "none")))
}

func TestHookTimeoutDefault(t *testing.T) {
	h, _ := testHook(t, newToyHook(t), 0)
	require.Equal(t, 10*time.Second, h.client.Timeout)
	require.Nil(t, newHook("customize", nil, nil, nil, nil))
}

func TestHookDown(t *testing.T) {
	toy := newToyHook(t)
	h, _ := testHook(t, toy, 0)
	toy.Close()
	require.ErrorContains(t, h.call(t.Context(), map[string]any{}, &metacontroller.Response{}), "connection refused")

	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	require.ErrorIs(t, h.call(ctx, map[string]any{}, &metacontroller.Response{}), context.Canceled)
}

func TestAnswerTooLong(t *testing.T) {
	toy := newToyHook(t)
	toy.say("sync", strings.Repeat(" ", maxAnswer+1))
	h, _ := testHook(t, toy, 0)
	require.ErrorContains(t, h.call(t.Context(), map[string]any{}, &metacontroller.Response{}), "longer than")
}

// always returns the same response to every call.
type always struct {
	status     int
	retryAfter string
	body       []byte
}

// RoundTrip implements http.RoundTripper.
func (a always) RoundTrip(r *http.Request) (*http.Response, error) {
	return &http.Response{StatusCode: a.status, Header: http.Header{"Retry-After": {a.retryAfter}}, Body: io.NopCloser(bytes.NewReader(a.body)), Request: r}, nil
}

// FuzzHookAnswers: for any response of a hook, only a 200 is decoded, and only a 429
// is retried after a delay.
func FuzzHookAnswers(f *testing.F) {
	f.Add(200, "", []byte(`{"status":{"n":1},"children":[{"apiVersion":"v1","kind":"Pod","metadata":{"name":"a"}}],"resyncAfterSeconds":1.5,"finalized":true}`))
	f.Add(200, "", []byte(`{"children":[null,{}],"Children":[]}`))
	f.Add(429, "Sun, 29 Nov 2026 19:00:07 UTC", []byte(`x`))
	f.Add(429, "9223372036854775807", []byte(``))
	f.Add(500, "", []byte("\xff\x00"))
	f.Add(200, "", []byte(`null`))
	f.Fuzz(func(t *testing.T, status int, retryAfter string, body []byte) {
		if status < 200 || status > 999 || status >= 300 && status < 400 {
			return // package http hands out no other, or follows it
		}
		spec := &metacontroller.Hook{Webhook: metacontroller.Webhook{URL: "http://hooks.invalid/sync"}}
		h := newHook("sync", spec, always{status, retryAfter, body}, testclock.NewFakeClock(start), newMetrics(prometheus.NewRegistry()))
		var answer metacontroller.Response
		err := h.call(t.Context(), map[string]any{}, &answer)
		var busy *busyError
		require.Equal(t, status == http.StatusTooManyRequests, errors.As(err, &busy))
		if err == nil {
			require.Equal(t, http.StatusOK, status)
		} else {
			require.Less(t, len(err.Error()), 10*maxQuoted+len(body))
		}
	})
}

// FuzzLastApplied: for any value of the annotation, applied fails, or its result has
// the desired fields and unchanged fields of the API server.
func FuzzLastApplied(f *testing.F) {
	f.Add(`{"metadata":{"labels":{"gone":"x"}},"spec":{"a":1}}`)
	f.Add(`{"metadata":{"uid":"forged"},"status":null}`)
	f.Add(`[]`)
	f.Add(`{"metadata":7,"spec":[{"name":"a"}]}`)
	f.Fuzz(func(t *testing.T, annotation string) {
		observed := &object{Object: map[string]any{
			"apiVersion": "v1", "kind": "Pod", "status": map[string]any{"phase": "Running"},
			"metadata": map[string]any{"name": "a", "uid": "real", "labels": map[string]any{"gone": "x", "kept": "y"}, "annotations": map[string]any{lastAppliedAnnotation: annotation}},
			"spec":     map[string]any{"a": int64(1), "b": []any{map[string]any{"name": "a", "v": "old"}}},
		}}
		desired := &object{Object: map[string]any{
			"apiVersion": "v1", "kind": "Pod", "metadata": map[string]any{"name": "a"},
			"spec": map[string]any{"b": []any{map[string]any{"name": "a", "v": "new"}}},
		}}
		out, err := applied(observed, desired)
		if err != nil {
			require.ErrorContains(t, err, lastAppliedAnnotation)
			return
		}
		require.Equal(t, "real", string(out.GetUID()))
		require.Equal(t, observed.Object["status"], out.Object["status"])
		spec, _ := out.Object["spec"].(map[string]any)
		require.Equal(t, desired.Object["spec"].(map[string]any)["b"], spec["b"])
		again, err := applied(out, desired)
		require.NoError(t, err)
		require.Equal(t, out.Object, again.Object, "once applied, it is at rest")
	})
}
