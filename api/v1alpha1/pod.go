package v1alpha1

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
