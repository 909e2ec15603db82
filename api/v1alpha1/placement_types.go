package v1alpha1

// Placement of a Managed instance. A provider ignores the fields that it does not
// support.
type Placement struct {
	// Zone is the provider's zone, such as europe-west1-b.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	Zone string `json:"zone,omitempty"`

	// MachineType is the provider's machine type, such as e2-micro.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	MachineType string `json:"machineType,omitempty"`

	// Image is the boot image. For Pods the provider config names the image.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=512
	Image string `json:"image,omitempty"`

	// Network is the VM's network, such as default or
	// projects/PROJECT/global/networks/NAME. The provider config has a default.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=512
	Network string `json:"network,omitempty"`

	// Subnetwork is the VM's subnetwork, such as
	// regions/REGION/subnetworks/NAME. With fallback zones in other regions
	// leave it out: a subnetwork belongs to one region.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=512
	Subnetwork string `json:"subnetwork,omitempty"`

	// NetworkTags select the VM in firewall rules, in addition to those of the
	// provider config.
	// +kubebuilder:validation:MaxItems=32
	// +listType=set
	NetworkTags []NetworkTag `json:"networkTags,omitempty"`

	// DiskSizeGB is the size of the boot disk in GB; without it the disk is
	// as large as the image.
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=65536
	DiskSizeGB int64 `json:"diskSizeGB,omitempty"`

	// Spot runs the VM on spare capacity: it is cheaper, and the provider evicts
	// it when it needs the capacity. It is then replaced.
	Spot bool `json:"spot,omitempty"`

	// FallbackZones are tried in this order if zone has no capacity for the
	// machine type. A running VM is not moved back when zone has capacity again.
	// +kubebuilder:validation:MaxItems=8
	FallbackZones []Zone `json:"fallbackZones,omitempty"`
}

// NetworkTag is a network tag of a VM.
//
// +kubebuilder:validation:MaxLength=63
// +kubebuilder:validation:Pattern=`^[a-z]([-a-z0-9]*[a-z0-9])?$`
type NetworkTag string

// Zone is a zone of a provider.
//
// +kubebuilder:validation:MinLength=1
// +kubebuilder:validation:MaxLength=63
type Zone string

// CloudInit is user data, inline or in a Secret: exactly one of them.
//
// +kubebuilder:validation:XValidation:rule="has(self.inline) != has(self.secretRef)",message="set exactly one of cloudInit.inline and cloudInit.secretRef"
type CloudInit struct {
	// Inline is the user data itself. No secrets here: specs are not secret.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=131072
	Inline string `json:"inline,omitempty"`

	// SecretRef names a key of a Secret of this namespace that is labelled
	// crawl.example.com/cloud-init: "true".
	SecretRef *SecretKeyRef `json:"secretRef,omitempty"`
}

// SecretKeyRef names one key of a Secret in the same namespace.
type SecretKeyRef struct {
	// Name of the Secret.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:XValidation:rule="self.matches('^[a-z0-9]([-a-z0-9.]*[a-z0-9])?$')",message="name is that of a Secret: lower-case letters, digits, '-' and '.', starting and ending with a letter or digit"
	Name string `json:"name"`

	// Key within the Secret's data.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:XValidation:rule="self.matches('^[-._a-zA-Z0-9]+$')",message="key is one that a Secret can have: letters, digits, '-', '_' and '.'"
	Key string `json:"key"`
}
