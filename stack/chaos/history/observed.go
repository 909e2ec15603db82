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

// Change is the kind of a watch event.
type Change string

// Changes.
const (
	Added    Change = "added"
	Modified Change = "modified"
	Deleted  Change = "deleted"
	Vanished Change = "vanished" // missing in the list after a gap
)

// Object is an API object as observed at At.
type Object struct {
	Stamp
	Change             Change      `json:"change"`
	Kind               string      `json:"kind"` // Proxy, ProxyProbe or Pod
	Name               string      `json:"name"` // namespace/name
	UID                string      `json:"uid"`
	Generation         int64       `json:"generation,omitempty"`
	ResourceVersion    string      `json:"resourceVersion"`
	Finalizers         []string    `json:"finalizers,omitempty"`
	Deleting           bool        `json:"deleting,omitempty"`   // it has a deletionTimestamp
	OwnerUID           string      `json:"ownerUID,omitempty"`   // the Proxy's, of a Pod or ProxyProbe
	Wanted             *Wanted     `json:"wanted,omitempty"`     // a Proxy's spec
	Phase              string      `json:"phase,omitempty"`      // of a Proxy or Pod; verdict of a ProxyProbe
	Reason             string      `json:"reason,omitempty"`     // of a ProxyProbe's verdict
	InstanceID         string      `json:"instanceID,omitempty"` // in the status
	Endpoint           string      `json:"endpoint,omitempty"`   // host:port in a Proxy's status or a ProxyProbe's spec; a Pod's IP
	ProviderID         string      `json:"providerID,omitempty"` // in a Proxy's status
	SpecHash           string      `json:"specHash,omitempty"`   // in a Proxy's status or a Pod's annotation
	ObservedGeneration int64       `json:"observedGeneration,omitempty"`
	Conditions         []Condition `json:"conditions,omitempty"`
	Restarts           int32       `json:"restarts,omitempty"` // of a Pod's containers
}

// Condition of an object's status.
type Condition struct {
	Type    string `json:"type"`
	Status  string `json:"status"`
	Reason  string `json:"reason,omitempty"`
	Message string `json:"message,omitempty"` // of one that is not True
}

// Gap is a window without observations: changes in it are observed at its end, or never.
type Gap struct {
	Stamp
	Observer string        `json:"observer"` // proxies, proxyprobes, pods, vms or metrics/PROCESS
	From     time.Duration `json:"from"`
	To       time.Duration `json:"to"`
	Detail   string        `json:"detail,omitempty"`
}

// VMs is the whole VM table, recorded when it differs from the last one.
type VMs struct {
	Stamp
	Asked time.Duration `json:"asked"` // before the table was read; At is after
	// Confirmed is the start of the last poll that returned the table before this one.
	Confirmed time.Duration `json:"confirmed,omitempty"`
	VMs       []VM          `json:"vms"`
}

// VM is a machine of the Compute Engine stand-in.
type VM struct {
	ID       string `json:"id"` // never reused
	Name     string `json:"name"`
	Zone     string `json:"zone"`
	UID      string `json:"uid,omitempty"`      // label: the Proxy's UID
	SpecHash string `json:"specHash,omitempty"` // label
	State    string `json:"state"`              // such as RUNNING
	IP       string `json:"ip,omitempty"`
}

// Processes is the table of processes that serve as proxies, recorded when it differs
// from the last one.
type Processes struct {
	Stamp
	Processes []Process `json:"processes"`
}

// Process is one process.
type Process struct {
	PID     int    `json:"pid"`
	Started uint64 `json:"started"` // in clock ticks since boot: pids are reused
	Name    string `json:"name"`
	Pod     string `json:"pod,omitempty"` // UID of the Pod that it serves
	VM      string `json:"vm,omitempty"`  // name and id of the VM that it serves
	State   string `json:"state"`         // letter in /proc/PID/stat
}

// Metrics is a sample of one of our processes. -1 is a figure that it does not have.
type Metrics struct {
	Stamp
	Process    string `json:"process"` // as in Fault.Subject
	PID        int    `json:"pid"`
	Started    uint64 `json:"started"`
	RSS        int64  `json:"rss"` // bytes
	Goroutines int    `json:"goroutines"`
	Heap       int64  `json:"heap"` // bytes in use
	FDs        int    `json:"fds"`
	Series     int    `json:"series"` // in /metrics
}

// Pressure is how starved of CPU the machine was since the last sample.
type Pressure struct {
	Stamp
	Over   time.Duration `json:"over"`   // length of the sample, up to At
	Waited time.Duration `json:"waited"` // time in which some task waited for a CPU, -1 when unknown
	Late   time.Duration `json:"late"`   // the largest delay of a timer
}
