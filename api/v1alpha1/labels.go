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
