package history

import "time"

// CallKind is a call of the discovery API.
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

// Failure says why a call or crawl has no answer. It is uncertain then whether
// what was asked for was done, but for Refused.
type Failure string

// Failures.
const (
	Refused Failure = "refused" // the connection was refused: nothing was sent
	Timeout Failure = "timeout" // no answer in time
	Broken  Failure = "broken"  // the connection broke: reset, EOF, cut body
	Odd     Failure = "odd"     // an answer that makes no sense
)

// Call is one call of a crawler, and what became of it. At is Asked.
type Call struct {
	Stamp
	// Domain and Replica that were asked; Crawler who did.
	Domain  string   `json:"domain"`
	Replica string   `json:"replica"`
	Crawler string   `json:"crawler"`
	Kind    CallKind `json:"kind"`
	// Asked is before the request was sent, Answered when all of the answer
	// was there, or when it was given up.
	Asked    time.Duration `json:"asked"`
	Answered time.Duration `json:"answered"`
	// Status is the HTTP status, 0 without an answer; then Failure says why.
	Status  int     `json:"status,omitempty"`
	Failure Failure `json:"failure,omitempty"`
	// Code and Reason are the problem's error and reason, Detail its text.
	Code   string `json:"code,omitempty"`
	Reason string `json:"reason,omitempty"`
	Detail string `json:"detail,omitempty"`
	// RetryAfter is the header, as it came.
	RetryAfter string `json:"retryAfter,omitempty"`

	// LeaseID that was granted or asked about.
	LeaseID string `json:"leaseID,omitempty"`
	// Key, Session, Selector, Target, TTL and Wait as asked for; TTL also of a renewal.
	Key      string            `json:"key,omitempty"`
	Session  string            `json:"session,omitempty"`
	Selector map[string]string `json:"selector,omitempty"`
	Target   string            `json:"target,omitempty"`
	TTL      time.Duration     `json:"ttl,omitempty"`
	Wait     time.Duration     `json:"wait,omitempty"`
	// Excluded is how many proxies were not wanted.
	Excluded int `json:"excluded,omitempty"`
	// Result that was reported.
	Result string `json:"result,omitempty"`

	// Of the answer: Proxy is "namespace/name", Endpoint "host:port".
	Proxy    string `json:"proxy,omitempty"`
	Endpoint string `json:"endpoint,omitempty"`
	// UID and InstanceID are not in answers; who knows them may add them.
	UID        string `json:"uid,omitempty"`
	InstanceID string `json:"instanceID,omitempty"`
	// FencingToken of the lease.
	FencingToken uint64 `json:"fencingToken,omitempty"`
	// ExpiresAt is the server's word, as an offset. 0: none.
	ExpiresAt time.Duration `json:"expiresAt,omitempty"`
	// Counts of a no_match, by their names.
	Counts map[string]int `json:"counts,omitempty"`
	// Listed is how many proxies a list had.
	Listed int `json:"listed,omitempty"`
}

// Uncertain reports whether it may have been done, or not.
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
	// OK: the target's own answer came through.
	OK bool `json:"ok"`
	// Status of the answer, 0 for none; then Failure says why.
	Status  int     `json:"status,omitempty"`
	Failure Failure `json:"failure,omitempty"`
	Detail  string  `json:"detail,omitempty"`
}
