package client

import (
	"bytes"
	"io"
	"net/http"
	"strings"
)

// wire answers with these bytes, which no discovery would.
type wire struct {
	granted, renewed []byte
	date             string
	renewals         int
}

// RoundTrip implements http.RoundTripper.
func (w *wire) RoundTrip(r *http.Request) (*http.Response, error) {
	status, body := http.StatusNoContent, []byte(nil)
	switch {
	case r.URL.Path == "/v1/leases":
		status, body = http.StatusCreated, w.granted
	case strings.HasSuffix(r.URL.Path, "/renew"):
		w.renewals++
		status, body = http.StatusOK, w.renewed
	}
	return &http.Response{StatusCode: status, Header: http.Header{"Date": {w.date}}, Body: io.NopCloser(bytes.NewReader(body)), Request: r}, nil
}
