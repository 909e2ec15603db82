package history

import (
	"reflect"
	"time"
)

// Record is one line of a history. Exactly one field is set.
type Record struct {
	Begin     *Begin     `json:"begin,omitempty"`
	Stage     *Stage     `json:"stage,omitempty"`
	Fault     *Fault     `json:"fault,omitempty"`
	Truth     *Truth     `json:"truth,omitempty"`
	Act       *Act       `json:"act,omitempty"`
	Call      *Call      `json:"call,omitempty"`
	Crawl     *Crawl     `json:"crawl,omitempty"`
	Object    *Object    `json:"object,omitempty"`
	Gap       *Gap       `json:"gap,omitempty"`
	VMs       *VMs       `json:"vms,omitempty"`
	Processes *Processes `json:"processes,omitempty"`
	Metrics   *Metrics   `json:"metrics,omitempty"`
	Pressure  *Pressure  `json:"pressure,omitempty"`
}

// Stamp is the part that all kinds of records have.
type Stamp struct {
	// At is when it happened. The Recorder sets it to now where it is zero.
	At   time.Duration `json:"at"`
	Line int           `json:"-"` // line in the file, from 1, set when it is read
}

func (s *Stamp) stamp() *Stamp { return s }

// stamp returns the stamp of the field that is set, nil when none is.
func (r *Record) stamp() *Stamp {
	for _, f := range reflect.ValueOf(r).Elem().Fields() {
		if !f.IsNil() {
			return f.Interface().(interface{ stamp() *Stamp }).stamp()
		}
	}
	return nil
}

// Begin is the first record.
type Begin struct {
	Stamp
	Wall  time.Time         `json:"wall"`            // wall time at offset 0
	Seed  uint64            `json:"seed"`            // of all random choices
	Notes map[string]string `json:"notes,omitempty"` // such as the lease stores' flags
}

// StageName is the name of a stage.
type StageName string

// Stages, in their order.
const (
	StageFill     StageName = "fill"     // Proxies are created
	StageBaseline StageName = "baseline" // load, for the figures to compare with
	StageFaults   StageName = "faults"   // load and faults
	StageRecovery StageName = "recovery" // load; all faults are healed
	StageSettled  StageName = "settled"  // no load; the final state
	StageEnd      StageName = "end"      // later records do not count
)

// Stage is the start of a stage.
type Stage struct {
	Stamp
	Name StageName `json:"name"`
}

// Family is a kind of fault.
type Family string

// Families of faults.
const (
	Kill          Family = "kill"           // SIGKILL of a process, until it was ready again
	Freeze        Family = "freeze"         // SIGSTOP of a process, until it continued
	SlowHooks     Family = "slow-hooks"     // the hooks respond late, in part or not at all
	AdapterSocket Family = "adapter-socket" // the adapter's socket is away
	Compute       Family = "compute"        // Compute Engine returns errors, partial lists, or loses responses
	ProxyTruth    Family = "proxy"          // a proxy died, hangs or lies
	TargetDown    Family = "target"         // the probe target is down
	RedisAway     Family = "redis"          // Redis is down
	DiskFull      Family = "disk-full"      // the lease journal cannot grow
	Terminated    Family = "terminated"     // an instance was preempted, deleted or removed by others
)

// Fault is the window of a fault. It is recorded twice: at its start, without To, and
// at its end.
type Fault struct {
	Stamp
	ID     int    `json:"id"` // joins the two records
	Family Family `json:"family"`
	// Subject is a process (apiserver, etcd, metacontroller, webhooks, cloud, prober,
	// discovery-file, discovery-redis-0, node, gcestandin, redis) or a Proxy's
	// namespace/name.
	Subject string `json:"subject"`
	UID     string `json:"uid,omitempty"` // of the Proxy
	// From is the earliest start, To the latest end, 0 while it lasts. A killed process
	// counts until it is ready.
	From   time.Duration `json:"from"`
	To     time.Duration `json:"to,omitempty"`
	Detail string        `json:"detail,omitempty"`
}

// State is the real state of a proxy.
type State string

// States of a proxy.
const (
	Alive   State = "alive"   // serves
	Dead    State = "dead"    // refuses connections
	Hanging State = "hanging" // accepts and does not respond
	Lying   State = "lying"   // returns wrong responses
)

// Truth is the state that the campaign put a proxy into, from At on, independent of
// what the system observes. Endpoints without one are alive.
type Truth struct {
	Stamp
	Proxy    string `json:"proxy"` // namespace/name
	UID      string `json:"uid"`
	Endpoint string `json:"endpoint"` // host:port
	State    State  `json:"state"`
}

// Verb is an action on a Proxy.
type Verb string

// Verbs.
const (
	Create   Verb = "create"
	Edit     Verb = "edit"
	Delete   Verb = "delete"
	Recreate Verb = "recreate" // create under the name of a deleted Proxy
)

// Act is a write request of the campaign to the API server.
type Act struct {
	Stamp
	Verb  Verb   `json:"verb"`
	Proxy string `json:"proxy"`         // namespace/name
	UID   string `json:"uid,omitempty"` // of a create: from the response
	// Asked and Answered bound the moment of the write.
	Asked      time.Duration `json:"asked"`
	Answered   time.Duration `json:"answered"`
	Uncertain  bool          `json:"uncertain,omitempty"`  // no response: it may have been done
	Failed     bool          `json:"failed,omitempty"`     // it was not done
	Generation int64         `json:"generation,omitempty"` // in the response
	Wanted     *Wanted       `json:"wanted,omitempty"`     // the spec after it
	Replaces   bool          `json:"replaces,omitempty"`   // it needs another instance
}

// Wanted is the spec of a Proxy.
type Wanted struct {
	Mode      string `json:"mode,omitempty"`
	Provider  string `json:"provider,omitempty"`
	SpecHash  string `json:"specHash,omitempty"`
	Port      int32  `json:"port,omitempty"`
	Zone      string `json:"zone,omitempty"`
	MaxLeases int32  `json:"maxLeases"`
	Endpoint  string `json:"endpoint,omitempty"` // host:port of an External one
	// Of its health check.
	Interval         time.Duration `json:"interval,omitempty"`
	Timeout          time.Duration `json:"timeout,omitempty"`
	FailureThreshold int32         `json:"failureThreshold,omitempty"`
	SuccessThreshold int32         `json:"successThreshold,omitempty"`
}
