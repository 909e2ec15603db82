// Package api is the HTTP API of discovery: it lists the proxies and leases them to
// crawlers.
package api

import (
	"cmp"
	"context"
	_ "embed" // openapi.yaml
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/go-chi/chi/v5"
	"github.com/go-chi/chi/v5/middleware"
	"k8s.io/utils/clock"
	"sigs.k8s.io/yaml"

	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/discovery/access"
	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/discovery/fleet"
	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/discovery/lease"
	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/internal/credentials"
	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/internal/httpapi"
)

// defaultLeaseTTL applies when a request has no ttlSeconds and Config.MaxLeaseTTL is
// not less.
const defaultLeaseTTL = 300 * time.Second

// ErrNoToken: the Config has neither Tokens nor Insecure.
var ErrNoToken = errors.New("no bearer tokens, and insecure is not set")

// Fleet has the current proxies.
type Fleet interface {
	// Snapshot returns the fleet as of now, or an error that unwraps to
	// fleet.ErrNotSynced and names the missing list.
	Snapshot() (fleet.Snapshot, error)
	// Changed returns a channel that is closed at the next change of Snapshot.
	// Verdicts that become stale do not close it.
	Changed() <-chan struct{}
}

// Tokens authenticates clients.
type Tokens interface {
	// Identify returns the holder of the token in an Authorization header, nil for
	// an unknown token. It takes constant time for all unknown ones.
	Identify(header string) *access.Holder
}

// CredentialsReader reads the Secret of a proxy's credentialsRef. The error unwraps
// to credentials.ErrRefused when the Secret itself is wrong.
type CredentialsReader interface {
	Read(ctx context.Context, namespace, name string) (credentials.Credentials, error)
}

// Config of a Server. All fields but Tokens are required.
type Config struct {
	// Fleet has the proxies.
	Fleet Fleet
	// Store keeps the leases.
	Store lease.Store
	// Credentials reads the Secrets of credentialsRef.
	Credentials CredentialsReader
	// Tokens authenticates requests.
	Tokens Tokens
	// Insecure allows Tokens to be nil: then every request has all scopes.
	Insecure bool
	// MaxLeaseTTL is the longest TTL that a request may ask for, at least 1 s.
	MaxLeaseTTL time.Duration
	// Clock must be the store's.
	Clock clock.Clock
	// Metrics counts requests.
	Metrics *Metrics
	// Log receives one line per request, and failures. It never receives tokens or
	// credentials.
	Log *slog.Logger
}

// Server is the HTTP API.
type Server struct {
	cfg         Config
	offers      *offers
	rendered    renderCache
	shared      sharedPages
	credentials CredentialsReader // cached
	table       []route
	document    json.RawMessage
	shell       *httpapi.Shell

	waitSlots chan struct{} // one element for each waiting request
	draining  chan struct{} // closed when requests must not wait any longer
	drain     sync.Once
}

// New returns a server, or ErrNoToken.
func New(cfg Config) (*Server, error) {
	if cfg.Tokens == nil && !cfg.Insecure {
		return nil, ErrNoToken
	}
	document, err := openAPIDocument()
	if err != nil {
		return nil, err
	}
	s := &Server{
		cfg:         cfg,
		document:    document,
		offers:      newOffers(cfg.Fleet, cfg.Store),
		credentials: credentials.NewCache(cfg.Credentials, credentialsTTL, cfg.Clock),
		waitSlots:   make(chan struct{}, maxWaiting),
		draining:    make(chan struct{}),
	}
	s.table = s.routes()
	s.shell = &httpapi.Shell{MaxBody: maxBody, Error: s.problem, Log: cfg.Log}
	return s, nil
}

// route is one row of the API.
type route struct {
	method, pattern string
	scope           access.Scope // "": not even a token
	handle          httpapi.Handler
}

const (
	healthPath    = "/healthz"
	openAPIPath   = "/openapi.json"
	cooldownsPath = "/v1/proxies/{" + namespaceParameter + "}/{" + nameParameter + "}/cooldowns"
)

// routes is the whole API. The router, 404s, 405s and the token checks derive from
// it.
func (s *Server) routes() []route {
	return []route{
		{http.MethodGet, healthPath, "", s.health},
		{http.MethodGet, openAPIPath, "", s.openAPI},
		{http.MethodGet, "/v1/proxies", access.ScopeRead, s.list},
		{http.MethodGet, cooldownsPath, access.ScopeAdmin, s.cooldowns},
		{http.MethodDelete, cooldownsPath, access.ScopeAdmin, s.endCooldowns},
		{http.MethodGet, "/v1/leases", access.ScopeAdmin, s.listLeases},
		{http.MethodPost, "/v1/leases", access.ScopeLease, s.acquire},
		{http.MethodGet, "/v1/leases/{id}", access.ScopeLease, s.get},
		{http.MethodPost, "/v1/leases/{id}/renew", access.ScopeLease, s.renew},
		{http.MethodDelete, "/v1/leases/{id}", access.ScopeLease, s.release},
		{http.MethodPost, "/v1/leases/{id}/report", access.ScopeLease, s.report},
	}
}

// Handler serves the API.
func (s *Server) Handler() http.Handler {
	r := chi.NewRouter()
	r.Use(withCall, s.observe, s.authenticated, middleware.GetHead) // HEAD wherever there is GET
	for _, rt := range s.table {
		r.Method(rt.method, rt.pattern, s.serve(rt))
	}
	r.NotFound(s.serve(route{handle: s.notFound}).ServeHTTP)
	r.MethodNotAllowed(s.serve(route{handle: s.methodNotAllowed}).ServeHTTP)
	return r
}

// serve checks the scope of the request's token before the route's handler.
func (s *Server) serve(rt route) http.Handler {
	return s.shell.Serve(func(r *http.Request) (httpapi.Response, error) {
		if h := callOf(r.Context()).holder; h != nil && !h.Scope.Includes(rt.scope) {
			return httpapi.Response{}, failf(codeForbidden, "%s %s needs the scope %s, and the token %s has only %s", rt.method, rt.pattern, rt.scope, h.Name, h.Scope)
		}
		return rt.handle(r)
	})
}

// Drain ends the wait of all waiting requests, for a server that is about to stop.
func (s *Server) Drain() { s.drain.Do(func() { close(s.draining) }) }

func (s *Server) health(*http.Request) (httpapi.Response, error) {
	return httpapi.Response{Status: http.StatusOK, Body: map[string]string{"status": "ok"}}, nil
}

func (s *Server) notFound(r *http.Request) (httpapi.Response, error) {
	known := make([]string, 0, len(s.table))
	for _, rt := range s.table {
		known = append(known, rt.method+" "+rt.pattern)
	}
	return httpapi.Response{}, failf(codeUnknownRoute, "there is no %s; there are %s", clip(r.URL.Path), strings.Join(known, ", "))
}

func (s *Server) methodNotAllowed(r *http.Request) (httpapi.Response, error) {
	list := strings.Join(s.methodsOf(r), ", ")
	err := failf(codeMethodNotAllowed, "%s does not take %s, but %s", clip(r.URL.Path), clip(r.Method), list)
	err.header = http.Header{"Allow": {list}}
	return httpapi.Response{}, err
}

// methodsOf lists the methods of the request's path.
func (s *Server) methodsOf(r *http.Request) []string {
	path := cmp.Or(r.URL.RawPath, r.URL.Path) // as chi routes
	var methods []string
	for _, rt := range s.table {
		if chi.RouteContext(r.Context()).Routes.Find(chi.NewRouteContext(), rt.method, path) != rt.pattern {
			continue
		}
		methods = append(methods, rt.method)
		if rt.method == http.MethodGet {
			methods = append(methods, http.MethodHead)
		}
	}
	return methods
}

// openAPIYAML is the description of the API, in the form that people edit. Tests
// compare it with the routes and with every answer that they get.
//
//go:embed openapi.yaml
var openAPIYAML []byte

// openAPIDocument is the description in the form that is served.
func openAPIDocument() (json.RawMessage, error) {
	doc, err := yaml.YAMLToJSONStrict(openAPIYAML)
	if err != nil {
		return nil, fmt.Errorf("openapi.yaml: %w", err)
	}
	return doc, nil
}

func (s *Server) openAPI(*http.Request) (httpapi.Response, error) {
	return httpapi.Response{Status: http.StatusOK, Header: http.Header{"Cache-Control": {"public, max-age=300"}}, Body: s.document}, nil
}
