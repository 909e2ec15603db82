package v1alpha1

// Labels and annotations that the parts agree on.
const (
	// LabelUID on a Pod holds the UID of its Proxy.
	LabelUID = Group + "/proxy-uid"
	// LabelProvider on a Pod holds its provider's name, for people and policies.
	LabelProvider = Group + "/provider"
	// LabelCredentials must be "true" on a Secret for credentialsRef to
	// count.
	LabelCredentials = Group + "/proxy-credentials"
	// LabelCloudInit must be "true" on a Secret for cloudInit.secretRef to
	// count.
	LabelCloudInit = Group + "/cloud-init"
	// LabelProberShard on a Lease holds the prober shard it stands for, as
	// Shard.LeaseLabel writes it.
	LabelProberShard = Group + "/prober-shard"
	// AnnotationSpecHash on a Pod holds the spec hash it was made with.
	AnnotationSpecHash = Group + "/spec-hash"
	// AnnotationAbandon set to "true" on a Proxy finalizes it without asking
	// its cloud, for a provider that is gone for good.
	AnnotationAbandon = Group + "/abandon"
	// ValueTrue is what a label or annotation holds to say yes.
	ValueTrue = "true"
)
