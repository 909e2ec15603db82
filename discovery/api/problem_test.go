package api

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/discovery/fleet"
	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/discovery/lease"
	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/discovery/store/memory"
	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/internal/httpapi"
)

func errNotSyncedYet() error { return fmt.Errorf("%w: no list of proxies yet", fleet.ErrNotSynced) }

// brokenStore fails, or panics, on every call.
type brokenStore struct{ err error }

func (b brokenStore) fail() error {
	if b.err == nil {
		panic("CANARY of a defect")
	}
	return b.err
}

func (b brokenStore) Acquire(context.Context, lease.Request) (lease.Lease, error) {
	return lease.Lease{}, b.fail()
}
func (b brokenStore) Renew(context.Context, string, time.Duration) (lease.Lease, error) {
	return lease.Lease{}, b.fail()
}
func (b brokenStore) Get(context.Context, string) (lease.Lease, error) {
	return lease.Lease{}, b.fail()
}
func (b brokenStore) Offer(lease.Offers)                                 {}
func (b brokenStore) Freed() <-chan struct{}                             { return nil }
func (b brokenStore) Changed() <-chan struct{}                           { return nil }
func (b brokenStore) Ready() error                                       { return b.err }
func (b brokenStore) Release(context.Context, string) error              { return b.fail() }
func (b brokenStore) Report(context.Context, string, lease.Report) error { return b.fail() }
func (b brokenStore) Usage(context.Context) (lease.Usage, error)         { return lease.Usage{}, b.fail() }

func (b brokenStore) List(context.Context, lease.Query) (lease.Page, error) {
	return lease.Page{}, b.fail()
}
func (b brokenStore) Cooldowns(context.Context, string) ([]lease.Cooldown, error) {
	return nil, b.fail()
}
func (b brokenStore) EndCooldowns(context.Context, string, string) (int, error) { return 0, b.fail() }

func withStore(s lease.Store) func(*Config) { return func(c *Config) { c.Store = s } }

func withLimits(l lease.Limits) func(*Config) {
	return func(c *Config) { c.Store.(*memory.Store).Limit(l) }
}

// badBody is something that a client can get wrong in a body.
type badBody struct {
	body, want string
	code       code
}

func badBodies() []badBody {
	long := strings.Repeat("x", 300)
	many := strings.TrimSuffix(strings.Repeat(`"k%d":"v",`, 33), ",")
	var numbers []any
	for i := range 33 {
		numbers = append(numbers, i)
	}
	return []badBody{
		{"", "the request body is empty; send a JSON object with any of exclude, schemes, selector, session, target, ttlSeconds, wait, waitForMatch", codeInvalidRequest},
		{"  \n", "the request body is empty", codeInvalidRequest},
		{"null", "is not a JSON object", codeInvalidRequest},
		{"[]", "is not a JSON object", codeInvalidRequest},
		{`"x"`, "is not a JSON object", codeInvalidRequest},
		{"{", "is not valid JSON: unexpected end of JSON input", codeInvalidRequest},
		{`{"target"`, "is not valid JSON", codeInvalidRequest},
		{`{"target":"a"`, "is not valid JSON", codeInvalidRequest},
		{`{"target":}`, "is not valid JSON", codeInvalidRequest},
		{`{target:"a"}`, "is not valid JSON", codeInvalidRequest},
		{"geo=eu", "is not valid JSON", codeInvalidRequest},
		{"{}{}", "after top-level value", codeInvalidRequest},
		{"{} x", "after top-level value", codeInvalidRequest},
		{`{"ttl":3}`, `unknown field "ttl"; known are exclude, schemes, selector, session, target, ttlSeconds, wait, waitForMatch`, codeInvalidRequest},
		{`{"TTLSeconds":3}`, `unknown field "TTLSeconds"`, codeInvalidRequest},
		{`{"` + long + `":3}`, "... (300 bytes)", codeInvalidRequest},
		{`{"target":"a","target":"b"}`, `duplicate field "target"`, codeInvalidRequest},
		{`{"ttlSeconds":"300"}`, `field "ttlSeconds": want a whole number, got string`, codeInvalidRequest},
		{`{"ttlSeconds":1.5}`, `field "ttlSeconds": want a whole number, got number 1.5`, codeInvalidRequest},
		{`{"ttlSeconds":1e400}`, `field "ttlSeconds": want a whole number`, codeInvalidRequest},
		{`{"ttlSeconds":{}}`, `field "ttlSeconds": want a whole number, got object`, codeInvalidRequest},
		{`{"ttlSeconds":[]}`, `field "ttlSeconds": want a whole number, got array`, codeInvalidRequest},
		{`{"ttlSeconds":99999999999999999999}`, "ttlSeconds is 99999999999999999999; the maximum is 3600", codeInvalidTTL},
		{`{"ttlSeconds":-99999999999999999999}`, "ttlSeconds is -99999999999999999999; want 1 to 3600", codeInvalidTTL},
		{`{"ttlSeconds":` + strings.Repeat("9", 3000) + `}`, "the maximum is 3600", codeInvalidTTL},
		{`{"ttlSeconds":true}`, `want a whole number, got bool`, codeInvalidRequest},
		{`{"selector":"geo=eu"}`, `field "selector": want an object whose values are strings, got string`, codeInvalidRequest},
		{`{"selector":{"geo":7}}`, `field "selector": want an object whose values are strings, got number`, codeInvalidRequest},
		{`{"selector":{"geo":"eu","geo":"us"}}`, `duplicate field "selector.geo"`, codeInvalidRequest},
		{`{"selector":{"geo":"eu","\u0067eo":"eu"}}`, `duplicate field "selector.geo"`, codeInvalidRequest},
		{`{"selector":{"geo":null}}`, `field "selector": want an object whose values are strings, got null`, codeInvalidRequest},
		{`{"selector":{"geo":{"eu":1}}}`, `field "selector": want an object whose values are strings, got object`, codeInvalidRequest},
		{"{\"selector\":{\"geo\":\"\xff\"}}", "is not UTF-8", codeInvalidRequest},
		{`{"selector":[]}`, `want an object whose values are strings, got array`, codeInvalidRequest},
		{`{"target":5}`, `field "target": want a string, got number`, codeInvalidRequest},
		{`{"ttlSeconds":0}`, "ttlSeconds is 0; want 1 to 3600", codeInvalidTTL},
		{`{"ttlSeconds":-5}`, "ttlSeconds is -5; want 1 to 3600", codeInvalidTTL},
		{`{"ttlSeconds":3601}`, "ttlSeconds is 3601; the maximum is 3600", codeInvalidTTL},
		{`{"ttlSeconds":9223372036854775807}`, "the maximum is 3600", codeInvalidTTL},
		{`{"selector":{"":"x"}}`, "an attribute without a name", codeInvalidRequest},
		{`{"selector":{"` + long + `":"x"}}`, "names have at most 63 characters", codeInvalidRequest},
		{`{"selector":{"geo":"` + long + `"}}`, `selector attribute "geo": values have at most 128 characters`, codeInvalidRequest},
		{fmt.Sprintf(`{"selector":{`+many+`}}`, numbers...), "the selector has 33 attributes; at most 32 are allowed", codeInvalidRequest},
		{`{"target":"` + long + `.example"}`, "target's host has 308 characters; host names have at most 253", codeInvalidRequest},
		{`{"target":"` + strings.Repeat("x", 3000) + `"}`, "target has 3000 bytes; at most 2048 are allowed", codeInvalidRequest},
		{`{"target":" "}`, "target names no host", codeInvalidRequest},
		{`{"target":"exa mple.com"}`, "target", codeInvalidRequest},
		{`{"target":"büro.example"}`, "xn-- form", codeInvalidRequest},
		{`{"target":"https:///path"}`, "target names no host", codeInvalidRequest},
	}
}

// TestEveryBadRequestIsToldWhatIsWrong sends everything that a client can get
// wrong in a body.
func TestEveryBadRequestIsToldWhatIsWrong(t *testing.T) {
	a := newAPI(t)
	a.fleet.set(aProxy("a"))
	for _, tt := range badBodies() {
		p := a.post("/v1/leases", tt.body).problem(http.StatusBadRequest, tt.code)
		assert.Contains(t, p.Detail, tt.want, tt.body)
		assert.Less(t, len(p.Detail), 400, "what was sent does not fill the answer")
	}
	a.lease(`{}`) // nothing of all this took the only place
}

func TestEveryBadReportIsToldWhatIsWrong(t *testing.T) {
	a := newAPI(t)
	for body, want := range map[string]string{
		"":                             "the request body is empty; send a JSON object with any of result, retryAfterSeconds, target",
		`{"result":"ok"}{}`:            "after top-level value",
		`{"result":7}`:                 `field "result": want a string, got number`,
		`{"result":"ok","targets":[]}`: `unknown field "targets"; known are result, retryAfterSeconds, target`,
		`{"result":"ok","target":"?"}`: "target names no host",
	} {
		assert.Contains(t, a.post("/v1/leases/some-id/report", body).problem(http.StatusBadRequest, codeInvalidRequest).Detail, want)
	}
}

// TestEveryProblemIsAnswered provokes each entry of the table of problems.
func TestEveryProblemIsAnswered(t *testing.T) {
	a := newAPI(t)
	down := newAPI(t, withStore(brokenStore{err: errors.New("the disk is full")}))
	down.fleet.set(aProxy("a"))
	defect := newAPI(t, withStore(brokenStore{}))
	defect.fleet.set(aProxy("a"))
	unsynced := newAPI(t)
	unsynced.fleet.fail(errNotSyncedYet())
	secretless := newAPI(t)
	secretless.fleet.set(aProxy("a", withSecret("login")))
	tokens := newAPI(t, withTokens(t))
	tokens.send(http.MethodGet, "/v1/proxies", "", bearing(slowToken)...)
	small := newAPI(t, withLimits(lease.Limits{Sessions: 1, TargetsPerProxy: 1, Targets: 1}))
	small.fleet.set(aProxy("a", withMaxLeases(9)))
	rested := small.lease(`{"session":"one"}`)
	small.report(rested.LeaseID, `{"result":"banned","target":"one.example"}`)
	big := `{"target":"` + strings.Repeat("x", maxBody) + `"}`

	provoke := map[code]func() answer{
		codeInvalidRequest:  func() answer { return a.post("/v1/leases", "nonsense") },
		codeInvalidQuery:    func() answer { return a.get("/v1/proxies?nonsense=1") },
		codeInvalidTTL:      func() answer { return a.post("/v1/leases", `{"ttlSeconds":0}`) },
		codeInvalidResult:   func() answer { return a.report("x", `{"result":"nonsense"}`) },
		codeUnauthorized:    func() answer { return a.send(http.MethodGet, "/v1/proxies", "", "Authorization", "") },
		codeForbidden:       func() answer { return tokens.send(http.MethodPost, "/v1/leases", "{}", bearing(readToken)...) },
		codeTooManyRequests: func() answer { return tokens.send(http.MethodGet, "/v1/proxies", "", bearing(slowToken)...) },
		codeTooManySessions: func() answer {
			return small.post("/v1/leases", `{"session":"another"}`)
		},
		codeTooManyCooldowns: func() answer {
			return small.report(rested.LeaseID, `{"result":"banned","target":"another.example"}`)
		},
		codeUnknownLease:     func() answer { return a.report("x", `{"result":"ok"}`) },
		codeUnknownProxy:     func() answer { return a.get("/v1/proxies/crawl/none/cooldowns") },
		codeUnknownRoute:     func() answer { return a.get("/v1/nonsense") },
		codeMethodNotAllowed: func() answer { return a.send(http.MethodPut, "/v1/leases", "{}") },
		codeNoMatch:          func() answer { return a.post("/v1/leases", `{}`) },
		codeLeaseGone: func() answer {
			a.fleet.set(aProxy("gone"))
			g := a.lease(`{}`)
			a.fleet.set()
			return a.get("/v1/leases/" + g.LeaseID)
		},
		codeKeyReused: func() answer {
			a.fleet.set(aProxy("keyed"))
			defer a.fleet.set()
			require.Equal(t, http.StatusCreated, a.send(http.MethodPost, "/v1/leases", `{}`, keyHeader, "k").status)
			return a.send(http.MethodPost, "/v1/leases", `{"target":"other.example"}`, keyHeader, "k")
		},
		codeBodyTooLarge:           func() answer { return a.post("/v1/leases", big) },
		codeUnsupportedMediaType:   func() answer { return a.send(http.MethodPost, "/v1/leases", "{}", "Content-Type", "text/plain") },
		codeInternal:               func() answer { return defect.post("/v1/leases", `{}`) },
		codeNotReady:               func() answer { return unsynced.post("/v1/leases", `{}`) },
		codeCredentialsUnavailable: func() answer { return secretless.post("/v1/leases", `{}`) },
		codeStoreUnavailable:       func() answer { return down.post("/v1/leases", `{}`) },
	}
	for c, kind := range problems {
		require.Contains(t, provoke, c, "no way to provoke it is known")
		p := provoke[c]().problem(kind.status, c)
		assert.Equal(t, kind.title, p.Title)
		if kind.retryAfter > 0 {
			assert.GreaterOrEqual(t, p.RetryAfterSeconds, int(kind.retryAfter/time.Second))
		}
	}
	assert.Len(t, problems, len(provoke))
}

func TestStoreThatIsDown(t *testing.T) {
	a := newAPI(t, withStore(brokenStore{err: errors.New("the disk is full")}))
	a.fleet.set(aProxy("a"))
	for _, res := range []answer{a.get("/v1/proxies"), a.post("/v1/leases", `{}`), a.get("/v1/leases/x"), a.post("/v1/leases/x/renew", ""), a.delete("/v1/leases/x"), a.report("x", `{"result":"ok"}`)} {
		p := res.problem(http.StatusServiceUnavailable, codeStoreUnavailable)
		assert.Equal(t, 5, p.RetryAfterSeconds)
		assert.NotContains(t, p.Detail, "disk")
	}
	assert.Contains(t, a.logs.String(), "the disk is full")
}

func TestFleetThatIsNotKnownYet(t *testing.T) {
	a := newAPI(t)
	a.fleet.fail(errNotSyncedYet())
	for _, res := range []answer{a.get("/v1/proxies"), a.post("/v1/leases", `{}`)} {
		p := res.problem(http.StatusServiceUnavailable, codeNotReady)
		assert.Equal(t, 2, p.RetryAfterSeconds)
	}
	assert.Equal(t, http.StatusOK, a.get("/healthz").status, "the process is alive")
}

func TestPanicsAreAnswered(t *testing.T) {
	a := newAPI(t, withStore(brokenStore{}))
	a.fleet.set(aProxy("a"))
	res := a.get("/v1/proxies")
	p := res.problem(http.StatusInternalServerError, codeInternal)
	assert.NotContains(t, res.body, "CANARY")
	assert.Contains(t, a.logs.String(), "CANARY of a defect")
	assert.Contains(t, a.logs.String(), "brokenStore", "the log says where")
	assert.Contains(t, a.logs.String(), p.Instance, "under the id that the client was told")
	assert.Equal(t, http.StatusOK, a.get("/healthz").status, "and the process lives on")
}

func TestAbortedHandlersAbort(t *testing.T) {
	h := newAPI(t).server.serve(route{handle: func(*http.Request) (httpapi.Response, error) { panic(http.ErrAbortHandler) }})
	assert.PanicsWithValue(t, http.ErrAbortHandler, func() {
		h.ServeHTTP(httptest.NewRecorder(), httptest.NewRequest(http.MethodGet, "/", nil))
	})
}

func TestBodiesThatCannotBeEncodedAreErrors(t *testing.T) {
	a := newAPI(t)
	s, err := New(Config{Insecure: true, Log: testLogger(a), Clock: a.clock, Credentials: a.secrets})
	require.NoError(t, err)
	rec := httptest.NewRecorder()
	s.serve(route{handle: func(*http.Request) (httpapi.Response, error) {
		return httpapi.Response{Status: http.StatusOK, Body: func() {}, Header: http.Header{"Location": {"/x"}}}, nil
	}}).ServeHTTP(rec, httptest.NewRequest(http.MethodGet, "/", nil))
	assert.Equal(t, http.StatusInternalServerError, rec.Code)
	assert.Equal(t, "application/problem+json", rec.Header().Get("Content-Type"))
	assert.Empty(t, rec.Header().Get("Location"), "nothing of the success is sent")
}

func TestWholeSeconds(t *testing.T) {
	for d, want := range map[time.Duration]int{
		0: 1, -time.Second: 1, time.Nanosecond: 1, time.Second: 1, time.Second + 1: 2, 90 * time.Second: 90,
	} {
		assert.Equal(t, want, httpapi.WholeSeconds(d), d.String())
	}
}
