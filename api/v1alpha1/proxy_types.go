package v1alpha1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// Mode is Managed or External.
//
// +kubebuilder:validation:Enum=Managed;External
type Mode string

const (
	// ModeManaged proxies are created, replaced and deleted by us.
	ModeManaged Mode = "Managed"
	// ModeExternal proxies run elsewhere; we only probe and lease them.
	ModeExternal Mode = "External"
)

// Phase is the one-word summary of a Proxy that `kubectl get px` shows.
//
// +kubebuilder:validation:Enum=Provisioning;Probing;Ready;Unhealthy;Replacing;Deleting;Failed
type Phase string

const (
	// PhaseProvisioning: no running instance yet.
	PhaseProvisioning Phase = "Provisioning"
	// PhaseProbing: an instance runs and has no verdict yet.
	PhaseProbing Phase = "Probing"
	// PhaseReady: an instance runs and probes through it succeed.
	PhaseReady Phase = "Ready"
	// PhaseUnhealthy: an instance runs and probes through it fail.
	PhaseUnhealthy Phase = "Unhealthy"
	// PhaseReplacing: the old instance is being deleted.
	PhaseReplacing Phase = "Replacing"
	// PhaseDeleting: the Proxy is being deleted.
	PhaseDeleting Phase = "Deleting"
	// PhaseFailed: no instance, and a retry does not help without a change.
	PhaseFailed Phase = "Failed"
)

// ProxySpec is the desired state of one crawling proxy.
//
// A change of port, placement or cloudInit replaces the instance: it gets
// another address. All other fields take effect in place.
//
// Rules that mention oldSelf are skipped on create, so immutability and
// "required when" stay separate rules.
//
// +kubebuilder:validation:XValidation:rule="self.mode == oldSelf.mode",message="mode is immutable; delete the Proxy and create another"
// +kubebuilder:validation:XValidation:rule="has(self.provider) == has(oldSelf.provider) && (!has(self.provider) || self.provider == oldSelf.provider)",message="provider is immutable; delete the Proxy and create another"
// +kubebuilder:validation:XValidation:rule="self.mode != 'Managed' || has(self.provider)",message="provider is required when mode is Managed; name an entry of the provider config"
// +kubebuilder:validation:XValidation:rule="self.mode != 'External' || !has(self.provider)",message="provider must not be set when mode is External"
// +kubebuilder:validation:XValidation:rule="self.mode != 'External' || has(self.endpoint)",message="endpoint is required when mode is External"
// +kubebuilder:validation:XValidation:rule="self.mode != 'Managed' || !has(self.endpoint)",message="endpoint must not be set when mode is Managed"
// +kubebuilder:validation:XValidation:rule="self.mode != 'External' || !has(self.cloudInit)",message="cloudInit must not be set when mode is External: there is no instance to boot"
// +kubebuilder:validation:XValidation:rule="self.mode != 'External' || !has(self.placement)",message="placement must not be set when mode is External: there is no instance to place"
// +kubebuilder:validation:XValidation:rule="!has(self.healthCheck) || !has(self.healthCheck.openProxyTest) || !self.healthCheck.openProxyTest || has(self.credentialsRef)",message="healthCheck.openProxyTest needs credentialsRef: only a proxy with a password can reject a probe without one"
type ProxySpec struct {
	// Mode is Managed (created, replaced and deleted by the operator) or
	// External (runs elsewhere, only probed and leased). Immutable.
	Mode Mode `json:"mode"`

	// Provider is the name of the provider, in the provider config, that runs
	// a Managed proxy. Required when mode is Managed, rejected otherwise.
	// Immutable.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	Provider string `json:"provider,omitempty"`

	// Endpoint is the address of an External proxy. Required when mode is
	// External, rejected otherwise.
	Endpoint *Endpoint `json:"endpoint,omitempty"`

	// Port is the TCP port that a Managed proxy listens on. A change
	// replaces the instance.
	// +kubebuilder:default=3128
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=65535
	Port int32 `json:"port,omitempty"`

	// MaxLeases is the maximum number of concurrent leases of this proxy. With
	// 0 it cannot be leased, but is still probed and listed.
	// +kubebuilder:default=5
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=100000
	MaxLeases *int32 `json:"maxLeases,omitempty"`

	// Placement is the zone, machine type, image and network of a Managed VM. A
	// change replaces the instance, even a Pod, whose placement is in the
	// provider config.
	Placement *Placement `json:"placement,omitempty"`

	// CloudInit is the user data of a Managed VM. A change of it, or of the
	// Secret's content, replaces the instance, even a Pod, which does not use
	// it.
	CloudInit *CloudInit `json:"cloudInit,omitempty"`

	// Attributes are selected on by crawlers, such as geo or tier.
	// +kubebuilder:validation:MaxProperties=32
	// +kubebuilder:validation:XValidation:rule="self.all(k, size(k) > 0 && size(k) <= 63 && k.matches('^[A-Za-z0-9]([A-Za-z0-9._-]*[A-Za-z0-9])?$'))",message="attribute names have 1 to 63 characters: letters, digits, '.', '_' and '-', starting and ending with a letter or digit"
	Attributes map[string]AttributeValue `json:"attributes,omitempty"`

	// HealthCheck configures the probes through this proxy.
	// +kubebuilder:default={}
	HealthCheck *HealthCheck `json:"healthCheck,omitempty"`

	// CredentialsRef names a Secret of this namespace with the keys username
	// and password, labelled crawl.example.com/proxy-credentials: "true". The
	// prober and discovery use it for proxies that require a password. The
	// password may be empty. Control characters, such as a newline at the end, are
	// refused, and so is a colon in the username.
	CredentialsRef *CredentialsRef `json:"credentialsRef,omitempty"`
}

// AttributeValue is the value of one attribute.
//
// +kubebuilder:validation:MaxLength=128
type AttributeValue string

// Endpoint is the address of a proxy that runs elsewhere.
type Endpoint struct {
	// Host is an IP address or a DNS name.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:XValidation:rule="isIP(self) || self.matches('^[A-Za-z0-9]([A-Za-z0-9._-]*[A-Za-z0-9])?$')",message="host is an IP address or a DNS name, without a scheme, brackets or port"
	Host string `json:"host"`

	// Port is the TCP port that the proxy listens on.
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=65535
	Port int32 `json:"port"`

	// Scheme of the connection to the proxy itself: http (default), or https for
	// a proxy that requires TLS before the first request. Its certificate must
	// be valid for host.
	Scheme Scheme `json:"scheme,omitempty"`
}

// Scheme of the connection to a proxy, independent of the target's.
//
// +kubebuilder:validation:Enum=http;https
type Scheme string

const (
	// SchemeHTTP proxies accept requests without TLS. It is the default.
	SchemeHTTP Scheme = "http"
	// SchemeHTTPS proxies require TLS.
	SchemeHTTPS Scheme = "https"
)

// CredentialsRef names a Secret with username and password in the same
// namespace.
type CredentialsRef struct {
	// Name of the Secret.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:XValidation:rule="self.matches('^[a-z0-9]([-a-z0-9.]*[a-z0-9])?$')",message="name is that of a Secret: lower-case letters, digits, '-' and '.', starting and ending with a letter or digit"
	Name string `json:"name"`
}

// ProxyStatus is the observed state. Only Metacontroller writes it, from the
// responses of the sync and finalize hooks.
type ProxyStatus struct {
	// Phase is the summary of the conditions.
	Phase Phase `json:"phase,omitempty"`

	// Reason is that of the first condition that is not True: Provisioned, then
	// Healthy. If both are True, it is a reason that needs attention although the
	// proxy works, such as a pending replacement, or empty.
	// +kubebuilder:validation:MaxLength=128
	Reason string `json:"reason,omitempty"`

	// IP is the address (for External the host) of the running instance.
	// +kubebuilder:validation:MaxLength=253
	IP string `json:"ip,omitempty"`

	// Port is the port of the running instance. During a replacement it differs
	// from that of the spec.
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=65535
	Port int32 `json:"port,omitempty"`

	// ProviderID locates the instance at its provider: namespace/name of a
	// Pod, zones/ZONE/instances/NAME of a VM.
	// +kubebuilder:validation:MaxLength=512
	ProviderID string `json:"providerID,omitempty"`

	// InstanceID identifies the instance: a Pod's UID, a VM's numeric ID, a
	// digest of an External endpoint. Names do not change in a replacement.
	// +kubebuilder:validation:MaxLength=128
	InstanceID string `json:"instanceID,omitempty"`

	// SpecHash is the hash with which the instance was created or adopted; for a
	// VM that is not observed yet, the hash of the create request.
	// +kubebuilder:validation:MaxLength=63
	SpecHash string `json:"specHash,omitempty"`

	// LatencyMillis is the duration of the last status-affecting probe.
	// +kubebuilder:validation:Minimum=0
	LatencyMillis *int64 `json:"latencyMillis,omitempty"`

	// LastHealthCheckTime is the time of the last status-affecting probe. It can
	// look stale: probes that do not change the status are not written.
	LastHealthCheckTime *metav1.Time `json:"lastHealthCheckTime,omitempty"`

	// ExitIP is the source address of this instance's requests as targets see it,
	// if healthCheck.exitProof is set.
	// +kubebuilder:validation:MaxLength=64
	ExitIP string `json:"exitIP,omitempty"`

	// ObservedGeneration is the generation of the spec that was reconciled last.
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`

	// Conditions are Provisioned and Healthy.
	// +listType=map
	// +listMapKey=type
	// +kubebuilder:validation:MaxItems=8
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}

// Proxy is one crawling proxy: an immutable, replaceable instance (Managed) or a
// proxy that runs elsewhere (External), probed and leased to crawlers.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:path=proxies,shortName=px,categories=crawl
// +kubebuilder:printcolumn:name="Mode",type=string,JSONPath=`.spec.mode`
// +kubebuilder:printcolumn:name="Provider",type=string,JSONPath=`.spec.provider`
// +kubebuilder:printcolumn:name="Phase",type=string,JSONPath=`.status.phase`
// +kubebuilder:printcolumn:name="IP",type=string,JSONPath=`.status.ip`
// +kubebuilder:printcolumn:name="Healthy",type=string,JSONPath=`.status.conditions[?(@.type=="Healthy")].status`
// +kubebuilder:printcolumn:name="Reason",type=string,JSONPath=`.status.reason`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
// +kubebuilder:printcolumn:name="Attributes",type=string,priority=1,JSONPath=`.spec.attributes`
// +kubebuilder:printcolumn:name="Latency-ms",type=integer,priority=1,JSONPath=`.status.latencyMillis`
// +kubebuilder:printcolumn:name="Exit-IP",type=string,priority=1,JSONPath=`.status.exitIP`
// +kubebuilder:printcolumn:name="Instance",type=string,priority=1,JSONPath=`.status.providerID`
type Proxy struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// Spec is the desired state.
	Spec ProxySpec `json:"spec"`
	// Status is the observed state.
	Status ProxyStatus `json:"status,omitempty"`
}

// ProxyList is a list of Proxies.
//
// +kubebuilder:object:root=true
type ProxyList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []Proxy `json:"items"`
}
