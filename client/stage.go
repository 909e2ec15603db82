package client

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptrace"
	"net/url"
	"sync"
)

// Stage is how far a request through a proxy came.
type Stage string

// Stages of a request. A plain http request has no CONNECT and goes from StageDial to
// StageTunnel.
const (
	StageRequest Stage = "request" // before the dial: the request itself is at fault
	StageDial    Stage = "dial"    // to the proxy
	StageConnect Stage = "connect" // the proxy's answer to CONNECT
	StageTunnel  Stage = "tunnel"  // the site, through the proxy
)

// ProxyError is an error of a request through Lease.HTTPClient before the response. It
// unwraps to the cause.
type ProxyError struct {
	Stage Stage
	// Status of the proxy's answer to CONNECT, 0 when there was none or it was a 200.
	Status int
	Err    error
}

// Error has the stage and the cause.
func (e *ProxyError) Error() string { return e.Stage.prefix() + e.Err.Error() }

func (s Stage) prefix() string { return "proxy: " + string(s) + ": " }

// Unwrap returns the cause.
func (e *ProxyError) Unwrap() error { return e.Err }

// Timeout implements net.Error, as http.Client expects it of a transport's errors.
func (e *ProxyError) Timeout() bool { return timedOut(e.Err) }

// Temporary implements net.Error.
func (e *ProxyError) Temporary() bool { return true }

// progress is the stage of one request. A transport may dial for a request and then give it
// another connection, so that events of the dial may follow those of the connection.
type progress struct {
	mu     sync.Mutex
	stage  Stage
	status int
	got    bool // the request has its connection
}

type progressKey struct{}

// reach records an event of a dial, which ctx belongs to.
func reach(ctx context.Context, s Stage, status int) {
	if p, ok := ctx.Value(progressKey{}).(*progress); ok {
		p.mu.Lock()
		defer p.mu.Unlock()
		if !p.got {
			p.stage, p.status = s, status
		}
	}
}

func (p *progress) set(s Stage, got bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.stage, p.status, p.got = s, 0, got
}

// failed returns err with the stage.
func (p *progress) failed(err error) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	return &ProxyError{Stage: p.stage, Status: p.status, Err: err}
}

// staged is a transport whose errors are a *ProxyError.
type staged struct {
	*http.Transport
	ended func() error // the reason for the end of the lease, nil before
}

// RoundTrip implements http.RoundTripper.
func (s staged) RoundTrip(req *http.Request) (*http.Response, error) {
	p := &progress{stage: StageRequest}
	ctx := httptrace.WithClientTrace(context.WithValue(req.Context(), progressKey{}, p), &httptrace.ClientTrace{
		GetConn: func(string) { p.set(StageDial, false) },
		GotConn: func(httptrace.GotConnInfo) { p.set(StageTunnel, true) },
	})
	resp, err := s.Transport.RoundTrip(req.WithContext(ctx))
	if err == nil {
		return resp, nil
	}
	if end := s.ended(); end != nil {
		err = fmt.Errorf("%w: %w", end, err)
	}
	return nil, p.failed(err)
}

// onConnect records the proxy's answer to CONNECT.
func onConnect(ctx context.Context, _ *url.URL, _ *http.Request, resp *http.Response) error {
	if resp.StatusCode == http.StatusOK {
		reach(ctx, StageTunnel, 0)
		return nil
	}
	reach(ctx, StageConnect, resp.StatusCode)
	return fmt.Errorf("the proxy answered CONNECT with %d", resp.StatusCode)
}
