package history

import "time"

// CallKind is an operation of the discovery API.
type CallKind string

// Calls.
const (
	Acquire CallKind = "acquire"
	Renew   CallKind = "renew"
	Get     CallKind = "get"
	Release CallKind = "release"
	Report  CallKind = "report"
	List    CallKind = "list"
)

// Failure is why a call or crawl has no response. Only after Refused it is certain
// that the request was not handled.
type Failure string

// Failures.
const (
	Refused Failure = "refused" // connection refused: nothing was sent
	Timeout Failure = "timeout" // no response in time
	Broken  Failure = "broken"  // connection broken: reset, EOF, cut body
	Odd     Failure = "odd"     // malformed response
)

// Call is one call of a crawler with its response. At is Asked.
type Call struct {
	Stamp
	Domain  string   `json:"domain"`
	Replica string   `json:"replica"` // discovery process
	Crawler string   `json:"crawler"`
	Kind    CallKind `json:"kind"`
	// Asked is before the request was sent, Answered after the response or the timeout.
	Asked      time.Duration `json:"asked"`
	Answered   time.Duration `json:"answered"`
	Status     int           `json:"status,omitempty"`  // 0 without a response
	Failure    Failure       `json:"failure,omitempty"` // when Status is 0
	Code       string        `json:"code,omitempty"`    // error in the problem document
	Reason     string        `json:"reason,omitempty"`  // reason in it
	Detail     string        `json:"detail,omitempty"`  // text in it
	RetryAfter string        `json:"retryAfter,omitempty"`

	// Of the request.
	LeaseID  string            `json:"leaseID,omitempty"` // also of a grant
	Key      string            `json:"key,omitempty"`     // Idempotency-Key
	Session  string            `json:"session,omitempty"`
	Selector map[string]string `json:"selector,omitempty"`
	Target   string            `json:"target,omitempty"`
	TTL      time.Duration     `json:"ttl,omitempty"`
	Wait     time.Duration     `json:"wait,omitempty"`
	Excluded int               `json:"excluded,omitempty"` // number of excluded proxies
	Result   string            `json:"result,omitempty"`   // of a report

	// Of the response.
	Proxy        string         `json:"proxy,omitempty"`    // namespace/name
	Endpoint     string         `json:"endpoint,omitempty"` // host:port
	UID          string         `json:"uid,omitempty"`      // not in responses: for tests
	InstanceID   string         `json:"instanceID,omitempty"`
	FencingToken uint64         `json:"fencingToken,omitempty"`
	ExpiresAt    time.Duration  `json:"expiresAt,omitempty"` // as an offset
	Counts       map[string]int `json:"counts,omitempty"`    // of a no_match
	Listed       int            `json:"listed,omitempty"`    // number of proxies in a list
}

// Uncertain reports whether the request may have been handled or not.
func (c *Call) Uncertain() bool {
	return (c.Status == 0 && c.Failure != Refused) || c.Status >= 500
}

// Crawl is one request through a leased proxy. At is Asked.
type Crawl struct {
	Stamp
	Domain   string        `json:"domain"`
	Crawler  string        `json:"crawler"`
	LeaseID  string        `json:"leaseID"`
	Proxy    string        `json:"proxy"`
	Endpoint string        `json:"endpoint"`
	Asked    time.Duration `json:"asked"`
	Answered time.Duration `json:"answered"`
	OK       bool          `json:"ok"` // the target's own response came through
	Status   int           `json:"status,omitempty"`
	Failure  Failure       `json:"failure,omitempty"` // when Status is 0
	Detail   string        `json:"detail,omitempty"`
}
