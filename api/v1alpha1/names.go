package v1alpha1

// Labels and annotations that several processes use.
const (
	// LabelUID on a Pod holds the UID of its Proxy.
	LabelUID = Group + "/proxy-uid"
	// LabelProvider on a Pod holds its provider's name, for kubectl and policies.
	LabelProvider = Group + "/provider"
	// LabelCredentials must be "true" on a Secret that credentialsRef names.
	LabelCredentials = Group + "/proxy-credentials"
	// LabelCloudInit must be "true" on a Secret that cloudInit.secretRef names.
	LabelCloudInit = Group + "/cloud-init"
	// LabelProberShard on a Lease holds the prober's shard in the format of
	// Shard.LeaseLabel.
	LabelProberShard = Group + "/prober-shard"
	// AnnotationSpecHash on a Pod holds the spec hash with which it was created.
	AnnotationSpecHash = Group + "/spec-hash"
	// AnnotationAbandon set to "true" on a Proxy finalizes it without a call of
	// its cloud, for a provider that does not exist any more.
	AnnotationAbandon = Group + "/abandon"
	// ValueTrue enables a label or annotation.
	ValueTrue = "true"
)

// Names in a proxy's Pod that the hook, the kubelet and the local stack's process
// node share. The process node runs the Pod without a container.
const (
	// PodContainer is the name of the Pod's one container.
	PodContainer = "squid"
	// PodPort is the name of the container's port, the proxy's.
	PodPort = "proxy"
	// PodConfigEnv is the container's environment variable with the whole squid
	// configuration, which has exactly one line "http_port PORT".
	PodConfigEnv = "SQUID_CONF"
	// PodRunDir is the only folder to which squid writes.
	PodRunDir = "/run/squid"
)

// Condition types of a Proxy, in the order in which status lists them.
const (
	// ConditionProvisioned: the instance that the spec asks for is running.
	ConditionProvisioned = "Provisioned"
	// ConditionHealthy: the prober's verdict on that instance.
	ConditionHealthy = "Healthy"
)

// Reasons of the Provisioned condition.
const (
	ReasonProvisioning            = "Provisioning"
	ReasonCreated                 = "Created"
	ReasonExternalEndpoint        = "ExternalEndpoint"
	ReasonReplacing               = "Replacing"
	ReasonReplacementPending      = "ReplacementPending"
	ReasonDeleting                = "Deleting"
	ReasonQuotaExceeded           = "QuotaExceeded"
	ReasonStockout                = "Stockout"
	ReasonPermanentError          = "PermanentError"
	ReasonCloudRefused            = "CloudRefused"
	ReasonCloudInitError          = "CloudInitError"
	ReasonCloudAdapterUnavailable = "CloudAdapterUnavailable"
	ReasonInstanceTerminated      = "InstanceTerminated"
	ReasonInstanceFailing         = "InstanceFailing"
	ReasonProvisioningTimeout     = "ProvisioningTimeout"
	ReasonUnknownProvider         = "UnknownProvider"
)

// ReasonProbeTargetDown is a reason of the Healthy condition and of a
// ProxyProbe's status: probes fail as they would through any proxy, because the
// probe target is down or much of the fleet does not answer. Such failures are
// suppressed, and the verdict stays. No other process depends on the prober's
// further reasons.
const ReasonProbeTargetDown = "ProbeTargetDown"
