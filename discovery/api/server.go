// Package api answers crawlers over HTTP: which proxies there are, and
// leases on them.
package api

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/go-chi/chi/v5"
	"github.com/go-chi/chi/v5/middleware"
	"k8s.io/utils/clock"

	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/discovery/access"
	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/discovery/fleet"
	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/discovery/lease"
	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/internal/credentials"
)

// defaultLeaseTTL is the TTL of a lease that asks for none, unless
// Config.MaxLeaseTTL is less.
const defaultLeaseTTL = 300 * time.Second

// ErrNoToken: neither tokens nor Insecure were given.
var ErrNoToken = errors.New("no bearer tokens and not told to do without")

// Config of a Server. All fields but Tokens are required.
type Config struct {
	// Fleet knows the proxies.
	Fleet Fleet
	// Store keeps the leases.
	Store lease.Store
	// Credentials reads the Secrets that credentialsRef names.
	Credentials CredentialsReader
	// Tokens that requests must bear one of.
	Tokens Tokens
	// Insecure allows Tokens to be nil, and then lets everybody do everything.
	Insecure bool
	// MaxLeaseTTL is the longest TTL that a lease may ask for, at least 1 s.
	MaxLeaseTTL time.Duration
	// Clock tells the time. It must be the store's.
	Clock clock.Clock
	// Metrics counts requests.
	Metrics *Metrics
	// Log receives one line per request, and what goes wrong. It is never
	// given tokens or credentials.
	Log *slog.Logger
}

// Server is the HTTP API.
type Server struct {
	fleet       Fleet
	store       lease.Store
	offers      *offers
	gallery     gallery
	census      census
	shared      sharedLists
	credentials CredentialsReader
	tokens      Tokens // nil lets everybody in
	table       []route
	document    json.RawMessage
	maxTTL      time.Duration
	clock       clock.Clock
	metrics     *Metrics
	log         *slog.Logger

	seats    chan struct{} // one for each request that waits
	draining chan struct{} // closed when requests must not wait any longer
	drain    sync.Once
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
		document:    document,
		fleet:       cfg.Fleet,
		store:       cfg.Store,
		offers:      newOffers(cfg.Fleet, cfg.Store),
		credentials: credentials.NewCache(cfg.Credentials, credentialsTTL, cfg.Clock),
		tokens:      cfg.Tokens,
		maxTTL:      cfg.MaxLeaseTTL,
		clock:       cfg.Clock,
		metrics:     cfg.Metrics,
		log:         cfg.Log,
		seats:       make(chan struct{}, maxWaiting),
		draining:    make(chan struct{}),
	}
	s.table = s.routes()
	return s, nil
}

// route is one entry of the API.
type route struct {
	method, pattern string
	needs           access.Scope // "": not even a token
	handle          handler
}

const (
	healthPath    = "/healthz"
	cooldownsPath = "/v1/proxies/{" + namespaceParameter + "}/{" + nameParameter + "}/cooldowns"
)

// routes is the whole API. Routers, 404s, 405s and the checks of tokens are made
// from it.
func (s *Server) routes() []route {
	return []route{
		{http.MethodGet, healthPath, "", s.health},
		{http.MethodGet, openAPIPath, "", s.describe},
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
	r.Use(
		withCall,
		s.observe,  // sees what recovered answers, too
		s.recovers, // around everything that can panic
		capBody,
		s.authenticate,
		middleware.GetHead, // HEAD wherever there is GET
	)
	for _, rt := range s.table {
		r.Method(rt.method, rt.pattern, s.serve(s.guarded(rt)))
	}
	r.NotFound(s.notFound)
	r.MethodNotAllowed(s.methodNotAllowed)
	return r
}

// Drain has requests that wait for something answered at once, for a server that
// is about to stop.
func (s *Server) Drain() { s.drain.Do(func() { close(s.draining) }) }

func (s *Server) health(*http.Request) (response, error) {
	return response{status: http.StatusOK, body: map[string]string{"status": "ok"}}, nil
}

func (s *Server) notFound(w http.ResponseWriter, r *http.Request) {
	known := make([]string, 0, len(s.table))
	for _, rt := range s.table {
		known = append(known, rt.method+" "+rt.pattern)
	}
	s.fail(w, r, failf(codeUnknownRoute, "there is no %s; there are %s", clip(r.URL.Path), strings.Join(known, ", ")))
}

func (s *Server) methodNotAllowed(w http.ResponseWriter, r *http.Request) {
	list := strings.Join(s.methodsOf(r), ", ")
	err := failf(codeMethodNotAllowed, "%s does not take %s, but %s", clip(r.URL.Path), clip(r.Method), list)
	err.header = http.Header{"Allow": {list}}
	s.fail(w, r, err)
}

// methodsOf lists the methods that the request's path takes.
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

// Fleet knows the proxies.
type Fleet interface {
	// Snapshot returns the fleet as of now, or an error that unwraps to
	// fleet.ErrNotSynced and says what is waited for.
	Snapshot() (fleet.Snapshot, error)
	// Changed returns a channel that is closed at the next change of what
	// Snapshot returns. What goes stale by its time closes nothing.
	Changed() <-chan struct{}
}

// Tokens knows who may do what.
type Tokens interface {
	// Identify returns who bears the token in an Authorization header, nil
	// when it is none that is known. It takes the same time for all wrong ones.
	Identify(header string) *access.Holder
}

// CredentialsReader reads the Secret that a proxy's credentialsRef names. The
// error unwraps to credentials.ErrRefused when somebody has to mend the Secret.
type CredentialsReader interface {
	Read(ctx context.Context, namespace, name string) (credentials.Credentials, error)
}
