package history

import "time"

// Change is what a watch says of an object.
type Change string

// Changes.
const (
	Added    Change = "added"
	Modified Change = "modified"
	Deleted  Change = "deleted"
	// Vanished: a list that followed a gap did not have it any more.
	Vanished Change = "vanished"
)

// Object is an API object as an observer saw it. At is when it saw it.
type Object struct {
	Stamp
	Change Change `json:"change"`
	// Kind is Proxy, ProxyProbe or Pod.
	Kind string `json:"kind"`
	// Name is "namespace/name".
	Name            string   `json:"name"`
	UID             string   `json:"uid"`
	Generation      int64    `json:"generation,omitempty"`
	ResourceVersion string   `json:"resourceVersion"`
	Finalizers      []string `json:"finalizers,omitempty"`
	// Deleting: it has a deletionTimestamp.
	Deleting bool `json:"deleting,omitempty"`
	// OwnerUID is the Proxy's, of a Pod or ProxyProbe.
	OwnerUID string `json:"ownerUID,omitempty"`
	// Wanted is a Proxy's spec.
	Wanted *Wanted `json:"wanted,omitempty"`
	// Phase of a Proxy or Pod, verdict of a ProxyProbe.
	Phase string `json:"phase,omitempty"`
	// Reason of a ProxyProbe's verdict.
	Reason string `json:"reason,omitempty"`
	// InstanceID of a Proxy's or ProxyProbe's status.
	InstanceID string `json:"instanceID,omitempty"`
	// Endpoint is host:port of a Proxy's status or a ProxyProbe's spec; a
	// Pod's address has no port.
	Endpoint string `json:"endpoint,omitempty"`
	// ProviderID of a Proxy's status.
	ProviderID string `json:"providerID,omitempty"`
	// SpecHash of a Proxy's status, of a Pod's annotation.
	SpecHash string `json:"specHash,omitempty"`
	// ObservedGeneration of a status.
	ObservedGeneration int64       `json:"observedGeneration,omitempty"`
	Conditions         []Condition `json:"conditions,omitempty"`
	// Restarts of a Pod's container.
	Restarts int32 `json:"restarts,omitempty"`
}

// Condition of an object's status.
type Condition struct {
	Type   string `json:"type"`
	Status string `json:"status"`
	Reason string `json:"reason,omitempty"`
	// Message of one that is not True, for people.
	Message string `json:"message,omitempty"`
}

// Gap is a window in which an observer saw nothing: changes within it are told
// of at its end, or never.
type Gap struct {
	Stamp
	// Observer is "proxies", "proxyprobes", "pods", "vms", "processes" or
	// "metrics/PROCESS".
	Observer string        `json:"observer"`
	From     time.Duration `json:"from"`
	To       time.Duration `json:"to"`
	Detail   string        `json:"detail,omitempty"`
}

// VMs is the whole VM table, recorded whenever it differs from the last one.
type VMs struct {
	Stamp
	// Asked is before the table was read, At after it.
	Asked time.Duration `json:"asked"`
	// Confirmed is when the last look was begun that still saw the table before
	// this one.
	Confirmed time.Duration `json:"confirmed,omitempty"`
	VMs       []VM          `json:"vms"`
}

// VM is a machine of the Compute Engine stand-in.
type VM struct {
	// ID is never used again.
	ID   string `json:"id"`
	Name string `json:"name"`
	Zone string `json:"zone"`
	// UID of the Proxy that it is labelled with.
	UID string `json:"uid,omitempty"`
	// SpecHash that it is labelled with.
	SpecHash string `json:"specHash,omitempty"`
	// State such as RUNNING.
	State string `json:"state"`
	// IP, also before it shows.
	IP string `json:"ip,omitempty"`
}

// Processes is the table of the processes that serve as proxies, recorded
// whenever it differs from the last one.
type Processes struct {
	Stamp
	Processes []Process `json:"processes"`
}

// Process of the process table.
type Process struct {
	PID int `json:"pid"`
	// Started, in clock ticks since boot, tells it from another with its pid.
	Started uint64 `json:"started"`
	// Name of the program.
	Name string `json:"name"`
	// Pod is the UID of the Pod, VM the name and id of the VM, that it serves.
	Pod string `json:"pod,omitempty"`
	VM  string `json:"vm,omitempty"`
	// State letter of /proc/PID/stat.
	State string `json:"state"`
}

// Metrics is a sample of one process of ours.
type Metrics struct {
	Stamp
	// Process is its name, as in Fault.Subject.
	Process string `json:"process"`
	// PID and Started tell its incarnations apart.
	PID     int    `json:"pid"`
	Started uint64 `json:"started"`
	// RSS in bytes.
	RSS int64 `json:"rss"`
	// Goroutines and heap bytes in use, -1 where the process does not tell.
	Goroutines int   `json:"goroutines"`
	Heap       int64 `json:"heap"`
	// FDs that are open.
	FDs int `json:"fds"`
	// Series is how many time series /metrics has, -1 without.
	Series int `json:"series"`
}

// Pressure is how starved of CPU the machine was since the last sample.
type Pressure struct {
	Stamp
	// Over is how long this sample covers, up to At.
	Over time.Duration `json:"over"`
	// Waited is for how much of that some task waited for a CPU, -1 where the
	// kernel does not tell.
	Waited time.Duration `json:"waited"`
	// Late is the most by which a timer of the sampler was late.
	Late time.Duration `json:"late"`
}
