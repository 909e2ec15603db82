package standin

import (
	"bytes"
	"errors"
	"io"
	"net/http"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"
	testclock "k8s.io/utils/clock/testing"

	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/metacontroller"
)

// always answers every call alike.
type always struct {
	status     int
	retryAfter string
	body       []byte
}

// RoundTrip implements http.RoundTripper.
func (a always) RoundTrip(r *http.Request) (*http.Response, error) {
	return &http.Response{StatusCode: a.status, Header: http.Header{"Retry-After": {a.retryAfter}}, Body: io.NopCloser(bytes.NewReader(a.body)), Request: r}, nil
}

// FuzzHookAnswers lets a hook answer anything at all: only a 200 is an answer, and
// only a 429 asks to be called again.
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

// FuzzLastApplied: whatever the annotation holds, it is refused, or what the hook
// wants is there afterwards and what the API server owns is as it was.
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
