package v1alpha1

// What the hook that makes a proxy's Pod and those that run or watch it agree
// on. The local stack's process node runs it without a container.
const (
	// PodContainer is the name of the Pod's one container.
	PodContainer = "squid"
	// PodPort is the name of the container's port, the proxy's.
	PodPort = "proxy"
	// PodConfigEnv is the container's environment variable with the whole squid
	// configuration, which has exactly one line "http_port PORT".
	PodConfigEnv = "SQUID_CONF"
	// PodRunDir is the one folder that squid writes to.
	PodRunDir = "/run/squid"
)
