package adapter

import (
	"bytes"
	"errors"
	"io"
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// always returns the same response to every request.
type always struct {
	status     int
	retryAfter string
	body       []byte
}

// RoundTrip implements http.RoundTripper.
func (a always) RoundTrip(r *http.Request) (*http.Response, error) {
	h := http.Header{"Retry-After": {a.retryAfter}}
	return &http.Response{StatusCode: a.status, Status: http.StatusText(a.status), Header: h, Body: io.NopCloser(bytes.NewReader(a.body)), Request: r}, nil
}

// FuzzClient returns arbitrary responses: each is an instance in a known state, or an
// error of a class that the hooks handle.
func FuzzClient(f *testing.F) {
	f.Add(200, "", []byte(`{"state":"Running","action":"None","ip":"192.0.2.1"}`))
	f.Add(200, "", []byte(`{"instances":[{"state":"Absent"}]}`))
	f.Add(503, "2", []byte(`{"error":"not_ready","message":"not listed yet"}`))
	f.Add(503, "9223372036854775807", []byte(`{"error":"not_ready"}`))
	f.Add(409, "-1", []byte(`{"error":"deleted"}`))
	f.Add(500, "1.5", []byte(`<html>`))
	f.Add(200, "", []byte(`null`))
	f.Fuzz(func(t *testing.T, status int, retryAfter string, body []byte) {
		if status < 100 || status > 999 {
			return // package http never returns such a status
		}
		c := &Client{http: &http.Client{Transport: always{status, retryAfter, body}, CheckRedirect: func(*http.Request, []*http.Request) error {
			return http.ErrUseLastResponse
		}}}
		check := func(err error) {
			require.NotEmpty(t, err.Error())
			known := false
			for _, class := range []error{ErrInvalid, ErrUnknownProvider, ErrDeleted, ErrConflict, ErrNotReady, ErrUnavailable} {
				known = known || errors.Is(err, class)
			}
			require.True(t, known, "%v is of no class", err)
			var e *StatusError
			if errors.As(err, &e) {
				require.Equal(t, status, e.Status)
				require.GreaterOrEqual(t, e.RetryAfter, time.Duration(0))
			}
		}
		got, err := c.Put(t.Context(), "p", "n", PutRequest{})
		if err != nil {
			check(err)
			require.Zero(t, got)
		} else {
			require.Equal(t, http.StatusOK, status)
			require.Contains(t, []State{StateAbsent, StateProvisioning, StateRunning, StateStopping, StateStopped}, got.State)
		}
		if _, err := c.List(t.Context()); err != nil {
			check(err)
		}
	})
}
