package v1alpha1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// Verdict of the prober on one instance.
//
// +kubebuilder:validation:Enum=Unknown;Healthy;Unhealthy
type Verdict string

const (
	// VerdictUnknown: too few conclusive probes so far, or the last one is stale;
	// see the reason.
	VerdictUnknown Verdict = "Unknown"
	// VerdictHealthy: successThreshold probes in a row succeeded.
	VerdictHealthy Verdict = "Healthy"
	// VerdictUnhealthy: failureThreshold probes in a row failed.
	VerdictUnhealthy Verdict = "Unhealthy"
)

// ProxyProbeSpec is the configuration of probes. The sync hook writes it; manual
// edits are reconciled away.
type ProxyProbeSpec struct {
	// InstanceID is the Proxy's status.instanceID. A change of it, host, port or
	// scheme resets counters and verdict.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=128
	InstanceID string `json:"instanceID"`

	// Host is the address that the prober dials.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	Host string `json:"host"`

	// Port is the TCP port that the prober dials.
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=65535
	Port int32 `json:"port"`

	// Scheme of the connection to the proxy; http if it is not set.
	Scheme Scheme `json:"scheme,omitempty"`

	// HealthCheck is the Proxy's.
	// +kubebuilder:default={}
	HealthCheck *HealthCheck `json:"healthCheck,omitempty"`

	// CredentialsRef is the Proxy's.
	CredentialsRef *CredentialsRef `json:"credentialsRef,omitempty"`
}

// ProxyProbeStatus is the prober's verdict. Only the prober writes it, and only on
// a first verdict, a flip, or a large and lasting change of a healthy proxy's
// latency.
type ProxyProbeStatus struct {
	// InstanceID is the instance that the verdict is about.
	// +kubebuilder:validation:MaxLength=128
	InstanceID string `json:"instanceID,omitempty"`

	// Verdict on that instance.
	Verdict Verdict `json:"verdict,omitempty"`

	// Reason is machine-readable, such as ProbeSucceeded or DialFailed.
	// +kubebuilder:validation:MaxLength=128
	Reason string `json:"reason,omitempty"`

	// Message is human-readable. It never contains credentials.
	// +kubebuilder:validation:MaxLength=1024
	Message string `json:"message,omitempty"`

	// LatencyMillis is the duration of the probe that caused this write.
	// +kubebuilder:validation:Minimum=0
	LatencyMillis *int64 `json:"latencyMillis,omitempty"`

	// LastTransitionTime is when the verdict last changed.
	LastTransitionTime *metav1.Time `json:"lastTransitionTime,omitempty"`

	// LastProbeTime is the time of the probe that caused this write.
	LastProbeTime *metav1.Time `json:"lastProbeTime,omitempty"`

	// ExitIP is the source address that targets see, if the probe detects it.
	// +kubebuilder:validation:MaxLength=64
	ExitIP string `json:"exitIP,omitempty"`

	// ObservedGeneration is the generation of the spec that was probed.
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`
}

// ProxyProbe is the configuration and the result of the probes of one Proxy, its
// owner, which has the same name.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:path=proxyprobes,shortName=pxp,categories=crawl
// +kubebuilder:printcolumn:name="Verdict",type=string,JSONPath=`.status.verdict`
// +kubebuilder:printcolumn:name="Reason",type=string,JSONPath=`.status.reason`
// +kubebuilder:printcolumn:name="Latency-ms",type=integer,JSONPath=`.status.latencyMillis`
// +kubebuilder:printcolumn:name="Exit-IP",type=string,JSONPath=`.status.exitIP`
// +kubebuilder:printcolumn:name="Since",type=date,JSONPath=`.status.lastTransitionTime`
type ProxyProbe struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// Spec is the configuration of the probes.
	Spec ProxyProbeSpec `json:"spec"`
	// Status is the verdict.
	Status ProxyProbeStatus `json:"status,omitempty"`
}

// ProxyProbeList is a list of ProxyProbes.
//
// +kubebuilder:object:root=true
type ProxyProbeList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []ProxyProbe `json:"items"`
}
