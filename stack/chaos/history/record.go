package history

import "time"

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

// Stamp is when something was, and where the history has it.
type Stamp struct {
	// At is the moment that the record is about. The Recorder fills in its own
	// now where it is zero.
	At time.Duration `json:"at"`
	// Line of the file, from 1, once it was read.
	Line int `json:"-"`
}

// Begin is the first record.
type Begin struct {
	Stamp
	// Wall is the wall time at offset 0.
	Wall time.Time `json:"wall"`
	// Seed that all random choices follow from.
	Seed uint64 `json:"seed"`
	// Resync is the engine's resync period.
	Resync time.Duration `json:"resync,omitempty"`
	// Domains in which leases are counted.
	Domains []Domain `json:"domains,omitempty"`
	// Notes say what else matters, such as versions, for people.
	Notes map[string]string `json:"notes,omitempty"`
}

// Domain is one lease store with the discovery processes in front of it.
type Domain struct {
	// Name such as "file" or "redis".
	Name string `json:"name"`
	// Cooldown and MaxTTL that its processes run with.
	Cooldown time.Duration `json:"cooldown"`
	MaxTTL   time.Duration `json:"maxTTL"`
	// OutageExtends: leases run on for as long as the process was away.
	OutageExtends bool `json:"outageExtends,omitempty"`
}

// StageName names what the campaign is at.
type StageName string

// Stages, in their order.
const (
	// StageFill: Proxies are made; nothing is broken yet.
	StageFill StageName = "fill"
	// StageBaseline: all is up and under load, for the figures to compare with.
	StageBaseline StageName = "baseline"
	// StageTrouble: faults happen.
	StageTrouble StageName = "trouble"
	// StageQuiet: everything is whole again and has time to settle, under load.
	StageQuiet StageName = "quiet"
	// StageSettled: the load has ended, too; what is now is what stays.
	StageSettled StageName = "settled"
	// StageEnd: nothing after it counts.
	StageEnd StageName = "end"
)

// Stage begins.
type Stage struct {
	Stamp
	Name StageName `json:"name"`
}

// Family is a kind of fault.
type Family string

// Families of faults.
const (
	Kill          Family = "kill"           // a process died by SIGKILL, until it was ready again
	Freeze        Family = "freeze"         // a process had SIGSTOP, until it went on
	SlowHooks     Family = "slow-hooks"     // hooks answer late
	AdapterSocket Family = "adapter-socket" // the adapter's socket is gone
	Compute       Family = "compute"        // Compute Engine errs, lists in part, loses answers
	ProxyTruth    Family = "proxy"          // a proxy died, hangs or lies
	TargetDown    Family = "target"         // the probe target is away
	RedisAway     Family = "redis"          // Redis is away
	DiskFull      Family = "disk-full"      // the lease journal cannot grow
	Terminated    Family = "terminated"     // an instance was ended from outside: preempted, Pod deleted or failed
)

// Fault is a window in which something was broken. It is recorded twice: when it
// begins, without To, and when it is over.
type Fault struct {
	Stamp
	// ID joins the two records.
	ID int `json:"id"`
	// Family of the fault.
	Family Family `json:"family"`
	// Subject is the process that was hit (apiserver, etcd, engine, webhooks,
	// cloud, prober, discovery-file, discovery-redis-0, node, gcestandin, redis)
	// or the proxy's namespace/name.
	Subject string `json:"subject"`
	// UID of the Proxy that was hit, if one was.
	UID string `json:"uid,omitempty"`
	// From is when it began at the earliest, To when its cause was over at the
	// latest; 0 while it is not. For a killed process that is when it was ready.
	From time.Duration `json:"from"`
	To   time.Duration `json:"to,omitempty"`
	// Detail is for people.
	Detail string `json:"detail,omitempty"`
}

// State is how a proxy really is.
type State string

// States of a proxy.
const (
	Alive   State = "alive"   // serves
	Dead    State = "dead"    // refuses connections
	Hanging State = "hanging" // accepts and does not answer
	Lying   State = "lying"   // answers, but not what it should
)

// Truth is what the campaign made of a proxy, from At on, whatever the system
// thinks. Before the first one about an endpoint, it is alive.
type Truth struct {
	Stamp
	// Proxy is "namespace/name".
	Proxy string `json:"proxy"`
	// UID of the Proxy object.
	UID string `json:"uid"`
	// Endpoint is the host:port that it is true of.
	Endpoint string `json:"endpoint"`
	// State since At.
	State State `json:"state"`
}

// Verb is what the campaign did to a Proxy.
type Verb string

// Verbs.
const (
	Create   Verb = "create"
	Edit     Verb = "edit"
	Delete   Verb = "delete"
	Recreate Verb = "recreate" // create under a name that was deleted before
)

// Act is what the campaign asked of the API server.
type Act struct {
	Stamp
	Verb Verb `json:"verb"`
	// Proxy is "namespace/name", UID its object's: of a create, the answer's.
	Proxy string `json:"proxy"`
	UID   string `json:"uid,omitempty"`
	// Asked and Answered bound the moment at which it took effect.
	Asked    time.Duration `json:"asked"`
	Answered time.Duration `json:"answered"`
	// Uncertain: no answer came; it may have taken effect.
	Uncertain bool `json:"uncertain,omitempty"`
	// Failed: it had no effect.
	Failed bool `json:"failed,omitempty"`
	// Generation of the object in the answer.
	Generation int64 `json:"generation,omitempty"`
	// Wanted is the spec after it.
	Wanted *Wanted `json:"wanted,omitempty"`
	// Replaces: it asks for another instance.
	Replaces bool `json:"replaces,omitempty"`
}

// Wanted is what a spec asks for.
type Wanted struct {
	Mode      string `json:"mode,omitempty"`
	Provider  string `json:"provider,omitempty"`
	SpecHash  string `json:"specHash,omitempty"`
	Port      int32  `json:"port,omitempty"`
	Zone      string `json:"zone,omitempty"`
	MaxLeases int32  `json:"maxLeases"`
	// Endpoint of an External one, host:port.
	Endpoint string `json:"endpoint,omitempty"`
	// Of its health check.
	Interval         time.Duration `json:"interval,omitempty"`
	Timeout          time.Duration `json:"timeout,omitempty"`
	FailureThreshold int32         `json:"failureThreshold,omitempty"`
	SuccessThreshold int32         `json:"successThreshold,omitempty"`
}
