package history

import "time"

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
