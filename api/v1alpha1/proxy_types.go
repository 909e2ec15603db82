package v1alpha1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// Mode says who runs the proxy behind a Proxy object.
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
	// PhaseProbing: an instance runs and no verdict is in yet.
	PhaseProbing Phase = "Probing"
	// PhaseReady: an instance runs and probes through it succeed.
	PhaseReady Phase = "Ready"
	// PhaseUnhealthy: an instance runs and probes through it fail.
	PhaseUnhealthy Phase = "Unhealthy"
	// PhaseReplacing: the old instance is on its way out.
	PhaseReplacing Phase = "Replacing"
	// PhaseDeleting: the Proxy is being deleted.
	PhaseDeleting Phase = "Deleting"
	// PhaseFailed: no instance, and none will come unless somebody acts.
	PhaseFailed Phase = "Failed"
)

// ProxySpec is the wanted state of one crawling proxy.
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
// +kubebuilder:validation:XValidation:rule="!has(self.healthCheck) || !has(self.healthCheck.openProxyTest) || !self.healthCheck.openProxyTest || has(self.credentialsRef)",message="healthCheck.openProxyTest needs credentialsRef: a proxy that asks for no password has nobody to refuse"
type ProxySpec struct {
	// Mode says who runs the proxy: Managed (created by us) or External
	// (runs elsewhere, only probed and leased). Immutable.
	Mode Mode `json:"mode"`

	// Provider names the entry of the provider config that runs a Managed
	// proxy. Required when mode is Managed, refused otherwise. Immutable.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	Provider string `json:"provider,omitempty"`

	// Endpoint is the address of an External proxy. Required when mode is
	// External, refused otherwise.
	// +optional
	Endpoint *Endpoint `json:"endpoint,omitempty"`

	// Port is the TCP port that a Managed proxy listens on. A change
	// replaces the instance.
	// +optional
	// +kubebuilder:default=3128
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=65535
	Port int32 `json:"port,omitempty"`

	// MaxLeases is how many leases may be held on this proxy at once.
	// 0 makes it unleasable while it stays probed and listed.
	// +optional
	// +kubebuilder:default=5
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=100000
	MaxLeases *int32 `json:"maxLeases,omitempty"`

	// Placement says where and on what a Managed VM runs. A change replaces
	// the instance, also a Pod, which the provider config alone places.
	// +optional
	Placement *Placement `json:"placement,omitempty"`

	// CloudInit is the user data that a Managed VM boots with. A change, also
	// one of the Secret's content, replaces the instance, also a Pod, which
	// makes no other use of it.
	// +optional
	CloudInit *CloudInit `json:"cloudInit,omitempty"`

	// Attributes are what crawlers select proxies by, such as geo or tier.
	// +optional
	// +kubebuilder:validation:MaxProperties=32
	// +kubebuilder:validation:XValidation:rule="self.all(k, size(k) > 0 && size(k) <= 63 && k.matches('^[A-Za-z0-9]([A-Za-z0-9._-]*[A-Za-z0-9])?$'))",message="attribute names have 1 to 63 characters: letters, digits, '.', '_' and '-', starting and ending with a letter or digit"
	Attributes map[string]AttributeValue `json:"attributes,omitempty"`

	// HealthCheck says how the prober checks this proxy, through the proxy.
	// +optional
	// +kubebuilder:default={}
	HealthCheck *HealthCheck `json:"healthCheck,omitempty"`

	// CredentialsRef names a Secret of this namespace with the keys username
	// and password, labelled crawl.example.com/proxy-credentials: "true". The
	// prober and discovery use it for proxies that ask for a password.
	// +optional
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

	// Scheme is how the proxy itself is spoken to: http, or https for a proxy
	// that wants TLS before the first request. Its certificate must then be for
	// host. Without it http.
	// +optional
	Scheme Scheme `json:"scheme,omitempty"`
}

// Scheme is how a proxy is spoken to, whatever the target speaks.
//
// +kubebuilder:validation:Enum=http;https
type Scheme string

const (
	// SchemeHTTP proxies take requests in the clear. The zero value means the
	// same.
	SchemeHTTP Scheme = "http"
	// SchemeHTTPS proxies want TLS first.
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

// ProxyStatus is what is. Metacontroller alone writes it, from the answers of
// the sync and finalize hooks.
type ProxyStatus struct {
	// Phase is the summary of the conditions.
	// +optional
	Phase Phase `json:"phase,omitempty"`

	// Reason is the one word for what is not well, from the conditions: of
	// Provisioned where that is not True, else of Healthy where that is not, else
	// of whatever needs somebody's attention though the proxy works. Empty where
	// all is well.
	// +optional
	// +kubebuilder:validation:MaxLength=128
	Reason string `json:"reason,omitempty"`

	// IP is the address (for External the host) of the running instance.
	// +optional
	// +kubebuilder:validation:MaxLength=253
	IP string `json:"ip,omitempty"`

	// Port is the port of the running instance, which during a replacement
	// is not the one of the spec.
	// +optional
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=65535
	Port int32 `json:"port,omitempty"`

	// ProviderID locates the instance at its provider: namespace/name of a
	// Pod, zones/ZONE/instances/NAME of a VM.
	// +optional
	// +kubebuilder:validation:MaxLength=512
	ProviderID string `json:"providerID,omitempty"`

	// InstanceID identifies the instance across replacements, which names
	// do not: a Pod's UID, a VM's numeric id, a digest of an External
	// endpoint.
	// +optional
	// +kubebuilder:validation:MaxLength=128
	InstanceID string `json:"instanceID,omitempty"`

	// SpecHash is the hash that the instance was made or adopted with; for a
	// VM that nobody has seen yet, the one that it was asked for with.
	// +optional
	// +kubebuilder:validation:MaxLength=63
	SpecHash string `json:"specHash,omitempty"`

	// LatencyMillis is the duration of the last status-affecting probe.
	// +optional
	// +kubebuilder:validation:Minimum=0
	LatencyMillis *int64 `json:"latencyMillis,omitempty"`

	// LastHealthCheckTime is the time of the last status-affecting probe, not
	// of the most recent one: probes that change nothing write nothing.
	// +optional
	LastHealthCheckTime *metav1.Time `json:"lastHealthCheckTime,omitempty"`

	// ExitIP is the address that targets see this instance come from, where the
	// probe could tell (healthCheck.exitProof).
	// +optional
	// +kubebuilder:validation:MaxLength=64
	ExitIP string `json:"exitIP,omitempty"`

	// ObservedGeneration is the generation of the spec that this status is
	// about.
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`

	// Conditions are Provisioned and Healthy.
	// +optional
	// +listType=map
	// +listMapKey=type
	// +kubebuilder:validation:MaxItems=8
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}

// Proxy is one crawling proxy: an immutable, replaceable instance (Managed) or
// somebody else's proxy (External), probed and leased to crawlers.
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

	// Spec is the wanted state.
	Spec ProxySpec `json:"spec"`
	// Status is the observed state.
	// +optional
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
