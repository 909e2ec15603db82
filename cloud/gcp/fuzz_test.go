package gcp

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"

	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/api/adapter"
	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/cloud/provider"
)

// always returns the same response to every call.
type always struct {
	status int
	body   []byte
}

// RoundTrip implements http.RoundTripper.
func (a *always) RoundTrip(r *http.Request) (*http.Response, error) {
	return &http.Response{
		StatusCode: a.status, Status: http.StatusText(a.status), Header: http.Header{"Content-Type": {"application/json"}},
		Body: io.NopCloser(bytes.NewReader(a.body)), Request: r, ContentLength: int64(len(a.body)),
	}, nil
}

// FuzzAnswers returns arbitrary responses to all five calls. Errors are classified and
// contain no user data; a list with gaps is marked as such.
func FuzzAnswers(f *testing.F) {
	const canary = "CANARY-of-user-data-5f2c"
	f.Add(200, []byte(`{"items":{"zones/europe-west1-b":{"instances":[{"name":"proxy-a","id":"7","status":"RUNNING","zone":"https://x/zones/europe-west1-b","labels":{"crawl-uid":"u","crawl-port":"99999999999"},"networkInterfaces":[{"accessConfigs":[{"natIP":"203.0.113.1"}]}],"creationTimestamp":"2026-01-01T00:00:00.000-07:00"}]}}}`))
	f.Add(200, []byte(`{"items":{"zones/a":{"warning":{"code":"UNREACHABLE"}}},"unreachables":["projects/p/zones/b"],"warning":{"code":"UNREACHABLE","data":[{"key":"scope","value":"regions/r"}]}}`))
	f.Add(200, []byte(`{"nextPageToken":"again"}`))
	f.Add(200, []byte(`{"name":"op","status":"DONE","targetId":"7","zone":"zones/a","error":{"errors":[{"code":"ZONE_RESOURCE_POOL_EXHAUSTED"},{"code":"QUOTA_EXCEEDED","message":"`+canary+`"}]},"httpErrorStatusCode":403}`))
	f.Add(409, []byte(`{"error":{"code":409,"message":"`+canary+`","errors":[{"reason":"alreadyExists","message":"`+canary+`"}]}}`))
	f.Add(403, []byte(`{"error":{"errors":[{"reason":"rateLimitExceeded"}]}}`))
	f.Add(503, []byte(`<html>`))
	f.Add(200, []byte(`null`))
	wire := &always{}
	c, err := New(context.Background(), Config{Project: "demo"}, "inst", Options{Endpoint: "http://compute.invalid"})
	require.NoError(f, err)
	c.http.Transport = wire
	c.http.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	f.Fuzz(func(t *testing.T, status int, body []byte) {
		if status < 200 || status > 999 {
			return // package http never returns such a status
		}
		wire.status, wire.body = status, body
		ctx, req := t.Context(), testInsert()
		req.Want.UserData = "#cloud-config\n" + canary + "\n"
		check := func(err error) {
			if err == nil {
				return
			}
			var e *provider.Error
			require.ErrorAs(t, err, &e)
			require.Equal(t, e.Class, provider.Class(err), "one class")
		}
		inserted, err := c.Insert(ctx, req)
		for _, err := range []error{err, inserted.Err} {
			check(err)
			if err != nil {
				require.NotContains(t, err.Error(), canary)
			}
		}
		got, err := c.Get(ctx, req.Ref)
		check(err)
		if err == nil {
			require.Contains(t, []adapter.State{adapter.StateProvisioning, adapter.StateRunning, adapter.StateStopping, adapter.StateStopped}, got.State)
			require.True(t, got.State != adapter.StateRunning || got.IP != "")
			require.Less(t, status, 300)
		}
		deleted, err := c.Delete(ctx, req.Ref, req.RequestID)
		check(errors.Join(err, deleted.Err))
		op, err := c.Operation(ctx, zoneB, "op")
		check(errors.Join(err, op.Err))
		require.True(t, op.Done || op.Err == nil)
		listing, err := c.List(ctx)
		check(err)
		if err == nil {
			checkListing(t, listing, body)
		}
	})
}

// checkListing compares a list with its wire format, decoded independently.
func checkListing(t *testing.T, listing provider.Listing, body []byte) {
	t.Helper()
	var told struct {
		Unreachables []string
		Warning      struct{ Code string }
	}
	if json.Unmarshal(body, &told) == nil && (len(told.Unreachables) > 0 || told.Warning.Code != "" && told.Warning.Code != noResults) {
		require.False(t, listing.Complete(), "something did not answer")
	}
	for _, zone := range listing.Unreachable {
		require.False(t, listing.Covers(zone))
		require.NotContains(t, zone, "/")
	}
	seen := map[provider.Ref]bool{}
	for _, in := range listing.Instances {
		require.False(t, seen[in.Ref], "once each")
		seen[in.Ref] = true
	}
}
