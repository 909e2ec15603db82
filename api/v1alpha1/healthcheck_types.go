package v1alpha1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// HealthCheck configures the probes of a proxy. The API server sets defaults.
type HealthCheck struct {
	// ProbeURL is fetched through the proxy. With https the probe also verifies
	// that the proxy opens tunnels and does not intercept TLS.
	// +kubebuilder:default="https://www.gstatic.com/generate_204"
	// +kubebuilder:validation:MaxLength=2048
	// +kubebuilder:validation:XValidation:rule="self.matches('^https?://[^\\\\s/@?#]+([/?#]\\\\S*)?$')",message="probeURL is an http or https URL without credentials, such as https://www.gstatic.com/generate_204"
	ProbeURL string `json:"probeURL,omitempty"`

	// ProbeURLs are fetched in turn, one per probe, instead of probeURL. With
	// several, the outage of one does not make proxies Unhealthy, and each
	// receives a part of the requests.
	// +kubebuilder:validation:MaxItems=8
	// +listType=set
	ProbeURLs []ProbeURL `json:"probeURLs,omitempty"`

	// ExitProof is set if the probe URLs are echo endpoints of this project. Their
	// responses prove their origin and contain the exit address.
	ExitProof *ExitProof `json:"exitProof,omitempty"`

	// OpenProxyTest sometimes probes without the credentials of credentialsRef. A
	// proxy that accepts such a probe is Unhealthy.
	OpenProxyTest bool `json:"openProxyTest,omitempty"`

	// Interval between the starts of two probes of one proxy.
	// +kubebuilder:default="30s"
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:MaxLength=32
	// +kubebuilder:validation:XValidation:rule="self.matches('^([0-9]+(ms|s|m|h))+$') && duration(self) >= duration('1s') && duration(self) <= duration('1h')",message="interval is a duration from 1s to 1h, such as 30s"
	Interval metav1.Duration `json:"interval,omitempty,omitzero"`

	// Timeout of one probe, for all its stages together.
	// +kubebuilder:default="5s"
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:MaxLength=32
	// +kubebuilder:validation:XValidation:rule="self.matches('^([0-9]+(ms|s|m|h))+$') && duration(self) >= duration('100ms') && duration(self) <= duration('2m')",message="timeout is a duration from 100ms to 2m, such as 5s"
	Timeout metav1.Duration `json:"timeout,omitempty,omitzero"`

	// FailureThreshold is how many probes in a row must fail before a Healthy
	// proxy becomes Unhealthy.
	// +kubebuilder:default=3
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=100
	FailureThreshold int32 `json:"failureThreshold,omitempty"`

	// SuccessThreshold is how many probes in a row must succeed before an
	// Unhealthy proxy becomes Healthy.
	// +kubebuilder:default=1
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=100
	SuccessThreshold int32 `json:"successThreshold,omitempty"`

	// ExpectedStatusCodes are the HTTP status codes that count as success.
	// +kubebuilder:default={200,204}
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=20
	// +kubebuilder:validation:items:Minimum=100
	// +kubebuilder:validation:items:Maximum=599
	// +listType=set
	ExpectedStatusCodes []int32 `json:"expectedStatusCodes,omitempty"`
}

// ProbeURL is one URL to probe.
//
// +kubebuilder:validation:MaxLength=2048
// +kubebuilder:validation:XValidation:rule="self.matches('^https?://[^\\\\s/@?#]+([/?#]\\\\S*)?$')",message="a probe URL is an http or https URL without credentials, such as https://www.gstatic.com/generate_204"
type ProbeURL string

// ExitProof configures the evaluation of an echo endpoint's response.
type ExitProof struct {
	// OnHeaderLeak is the policy for a proxy that adds headers which carry an IP
	// address or name a proxy, such as Via or X-Forwarded-For: Report lists them
	// in the message, Fail counts the probe as a failure. Only probes of http URLs
	// detect them: a proxy cannot add headers to a request within TLS.
	// +kubebuilder:default=Report
	OnHeaderLeak HeaderLeakPolicy `json:"onHeaderLeak,omitempty"`
}

// HeaderLeakPolicy is the reaction to leaked headers.
//
// +kubebuilder:validation:Enum=Report;Fail
type HeaderLeakPolicy string

const (
	// ReportHeaderLeak lists leaked headers in the message.
	ReportHeaderLeak HeaderLeakPolicy = "Report"
	// FailOnHeaderLeak counts a probe with leaked headers as a failure.
	FailOnHeaderLeak HeaderLeakPolicy = "Fail"
)
