// Package httpapi is the HTTP shell of all servers: shell.go has what each route needs
// (body cap, panics, errors, encoding), server.go runs a server until its context ends and
// drains the requests in flight.
package httpapi

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"time"
)

// shutdownGrace is the timeout for requests in flight after the context ended. It is
// shorter than a Pod's default termination grace of 30 s.
const shutdownGrace = 20 * time.Second

// writeTimeout is from the end of a request's header to the end of its response. Without
// it, a client that never reads would hold a goroutine and megabytes of kernel memory
// forever. It leaves time for a slow body and for a handler that waits half a minute.
const writeTimeout = 2 * time.Minute

// NewServer returns a server with timeouts against slow or malicious clients.
func NewServer(h http.Handler, log *slog.Logger) *http.Server {
	return &http.Server{
		Handler:           h,
		ReadHeaderTimeout: 5 * time.Second,
		ReadTimeout:       30 * time.Second,
		WriteTimeout:      writeTimeout,
		IdleTimeout:       75 * time.Second,
		MaxHeaderBytes:    32 << 10,
		ErrorLog:          slog.NewLogLogger(log.Handler(), slog.LevelWarn),
	}
}

// Run serves srv on ln until ctx ends, with TLS when srv.TLSConfig is set, and
// then shuts down. It returns nil after a clean shutdown; it closes ln in every
// case.
func Run(ctx context.Context, srv *http.Server, ln net.Listener) error {
	failed := make(chan error, 1)
	go func() { failed <- serve(srv, ln) }()
	select {
	case err := <-failed:
		return fmt.Errorf("serve on %s: %w", ln.Addr(), err)
	case <-ctx.Done():
	}
	grace, cancel := context.WithTimeout(context.WithoutCancel(ctx), shutdownGrace)
	defer cancel()
	err := srv.Shutdown(grace)
	if err != nil {
		err = fmt.Errorf("shut down %s: %w", ln.Addr(), errors.Join(err, srv.Close()))
	}
	<-failed
	return err
}

// RunDraining is Run with a drain between the end of ctx and the shutdown: requests are
// served as before, and every response asks its client to close the connection. A
// shutdown closes idle connections, which would lose a request that is just being sent;
// busy clients have opened connections elsewhere by then. during 0 shuts down at once.
//
// A preStop hook must have removed the Pod from its Service before ctx ends.
func RunDraining(ctx context.Context, srv *http.Server, ln net.Listener, during time.Duration) error {
	next := srv.Handler
	srv.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		next.ServeHTTP(&parting{ResponseWriter: w, ctx: ctx}, r)
	})
	late, shutDown := context.WithCancel(context.WithoutCancel(ctx))
	defer shutDown()
	stop := context.AfterFunc(ctx, func() {
		timer := time.AfterFunc(during, shutDown)
		context.AfterFunc(late, func() { timer.Stop() })
	})
	defer stop()
	return Run(late, srv, ln)
}

// parting asks the client to close the connection when ctx has ended by the time of the
// response: a long poll may have started long before.
type parting struct {
	http.ResponseWriter
	ctx  context.Context
	said bool
}

// WriteHeader implements http.ResponseWriter.
func (p *parting) WriteHeader(status int) {
	p.decide()
	p.ResponseWriter.WriteHeader(status)
}

// Write implements http.ResponseWriter.
func (p *parting) Write(b []byte) (int, error) {
	p.decide()
	return p.ResponseWriter.Write(b)
}

// Unwrap is for http.ResponseController.
func (p *parting) Unwrap() http.ResponseWriter { return p.ResponseWriter }

func (p *parting) decide() {
	if !p.said && p.ctx.Err() != nil {
		p.Header().Set("Connection", "close")
	}
	p.said = true
}

func serve(srv *http.Server, ln net.Listener) error {
	if srv.TLSConfig != nil {
		return srv.ServeTLS(ln, "", "")
	}
	return srv.Serve(ln)
}
