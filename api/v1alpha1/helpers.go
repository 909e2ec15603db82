package v1alpha1

import (
	"cmp"
	"crypto/sha256"
	"encoding/base32"
	"net"
	"slices"
	"strconv"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
)

// Defaults of the CRD schema. The helpers use them for objects that the API server
// has not defaulted.
const (
	DefaultPort             int32 = 3128
	DefaultMaxLeases        int32 = 5
	DefaultProbeURL               = "https://www.gstatic.com/generate_204"
	DefaultInterval               = 30 * time.Second
	DefaultTimeout                = 5 * time.Second
	DefaultFailureThreshold int32 = 3
	DefaultSuccessThreshold int32 = 1
)

// EffectivePort is the desired port: the endpoint's for External proxies,
// spec.port or its default for Managed ones.
func (p *Proxy) EffectivePort() int32 {
	if p.Spec.Mode == ModeExternal && p.Spec.Endpoint != nil {
		return p.Spec.Endpoint.Port
	}
	return cmp.Or(p.Spec.Port, DefaultPort)
}

// EffectiveHost is the proxy's current address: the endpoint's host for External
// proxies, the running instance's address for Managed ones, or "".
func (p *Proxy) EffectiveHost() string {
	if p.Spec.Mode == ModeExternal && p.Spec.Endpoint != nil {
		return p.Spec.Endpoint.Host
	}
	return p.Status.IP
}

// EffectiveScheme is the scheme of connections to the proxy.
func (p *Proxy) EffectiveScheme() Scheme {
	if p.Spec.Mode == ModeExternal && p.Spec.Endpoint != nil && p.Spec.Endpoint.Scheme != "" {
		return p.Spec.Endpoint.Scheme
	}
	return SchemeHTTP
}

// MaxLeasesOrDefault is spec.maxLeases; an explicit 0 stays 0.
func (p *Proxy) MaxLeasesOrDefault() int32 {
	return ptr.Deref(p.Spec.MaxLeases, DefaultMaxLeases)
}

// OrDefault returns a copy of hc, which may be nil, with defaults for unset fields.
func (hc *HealthCheck) OrDefault() HealthCheck {
	out := HealthCheck{}
	if hc != nil {
		out = *hc.DeepCopy()
	}
	out.ProbeURL = cmp.Or(out.ProbeURL, DefaultProbeURL)
	out.Interval.Duration = cmp.Or(out.Interval.Duration, DefaultInterval)
	out.Timeout.Duration = cmp.Or(out.Timeout.Duration, DefaultTimeout)
	out.FailureThreshold = cmp.Or(out.FailureThreshold, DefaultFailureThreshold)
	out.SuccessThreshold = cmp.Or(out.SuccessThreshold, DefaultSuccessThreshold)
	if out.ExitProof != nil {
		out.ExitProof.OnHeaderLeak = cmp.Or(out.ExitProof.OnHeaderLeak, ReportHeaderLeak)
	}
	if len(out.ExpectedStatusCodes) == 0 {
		out.ExpectedStatusCodes = []int32{200, 204}
	}
	return out
}

// URLs are the probe URLs in the order of their use: probeURLs, or probeURL.
func (hc *HealthCheck) URLs() []string {
	if len(hc.ProbeURLs) == 0 {
		return []string{hc.ProbeURL}
	}
	urls := make([]string, len(hc.ProbeURLs))
	for i, u := range hc.ProbeURLs {
		urls[i] = string(u)
	}
	return urls
}

// Expects reports whether code counts as success.
func (hc *HealthCheck) Expects(code int) bool {
	return slices.Contains(hc.ExpectedStatusCodes, int32(code))
}

// InstanceName is the name of the Pod or VM that serves the Proxy with this
// UID: "proxy-" and 16 characters of lower-case base32 (RFC 4648, no padding)
// of the first ten bytes of SHA-256 over the UID. It is a valid Pod name and a
// valid GCE name ([a-z]([-a-z0-9]*[a-z0-9])?), and differs between a Proxy and
// its predecessor of the same name.
func InstanceName(uid types.UID) string {
	sum := sha256.Sum256([]byte(uid))
	return "proxy-" + lowerBase32(sum[:10])
}

// ExternalInstanceID is the instance ID of an External proxy: a digest of its
// endpoint, so that a stale verdict on an old endpoint does not apply to the new
// one.
func ExternalInstanceID(e Endpoint) string {
	address := net.JoinHostPort(e.Host, strconv.Itoa(int(e.Port)))
	if e.Scheme == SchemeHTTPS {
		address = "https://" + address
	}
	sum := sha256.Sum256([]byte(address))
	return "external-" + lowerBase32(sum[:10])
}

func lowerBase32(b []byte) string {
	return strings.ToLower(base32.StdEncoding.WithPadding(base32.NoPadding).EncodeToString(b))
}
