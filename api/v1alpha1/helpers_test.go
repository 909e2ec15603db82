package v1alpha1

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/utils/ptr"
)

func TestEffectiveAddress(t *testing.T) {
	endpoint := &Endpoint{Host: "proxy.example.com", Port: 8080}
	for name, tc := range map[string]struct {
		spec ProxySpec
		ip   string
		host string
		port int32
	}{
		"managed, not running":           {ProxySpec{Mode: ModeManaged}, "", "", 3128},
		"managed, running":               {ProxySpec{Mode: ModeManaged, Port: 3129}, "127.0.0.9", "127.0.0.9", 3129},
		"managed, with a stray endpoint": {ProxySpec{Mode: ModeManaged, Endpoint: endpoint}, "127.0.0.9", "127.0.0.9", 3128},
		"external":                       {ProxySpec{Mode: ModeExternal, Endpoint: endpoint, Port: 3128}, "", "proxy.example.com", 8080},
		"external, status is old":        {ProxySpec{Mode: ModeExternal, Endpoint: endpoint}, "192.0.2.1", "proxy.example.com", 8080},
		"external, without endpoint":     {ProxySpec{Mode: ModeExternal}, "", "", 3128},
	} {
		t.Run(name, func(t *testing.T) {
			p := &Proxy{Spec: tc.spec, Status: ProxyStatus{IP: tc.ip}}
			assert.Equal(t, tc.host, p.EffectiveHost())
			assert.Equal(t, tc.port, p.EffectivePort())
		})
	}
}

func TestMaxLeasesOrDefault(t *testing.T) {
	for name, tc := range map[string]struct {
		given *int32
		want  int32
	}{
		"not set":       {nil, 5},
		"explicit zero": {ptr.To[int32](0), 0},
		"set":           {ptr.To[int32](17), 17},
	} {
		p := &Proxy{Spec: ProxySpec{MaxLeases: tc.given}}
		assert.Equal(t, tc.want, p.MaxLeasesOrDefault(), name)
	}
}

func TestHealthCheckOrDefault(t *testing.T) {
	all := HealthCheck{
		ProbeURL: "https://www.gstatic.com/generate_204", Interval: metav1.Duration{Duration: 30 * time.Second}, Timeout: metav1.Duration{Duration: 5 * time.Second},
		FailureThreshold: 3, SuccessThreshold: 1, ExpectedStatusCodes: []int32{200, 204},
	}
	own := HealthCheck{
		ProbeURL: "http://x/", Interval: metav1.Duration{Duration: time.Second}, Timeout: metav1.Duration{Duration: time.Millisecond},
		FailureThreshold: 7, SuccessThreshold: 8, ExpectedStatusCodes: []int32{418},
	}
	partial, wantPartial := HealthCheck{FailureThreshold: 9}, all
	wantPartial.FailureThreshold = 9
	var none *HealthCheck

	assert.Equal(t, all, none.OrDefault())
	assert.Equal(t, all, (&HealthCheck{}).OrDefault())
	assert.Equal(t, all, (&HealthCheck{ExpectedStatusCodes: []int32{}}).OrDefault())
	assert.Equal(t, own, own.OrDefault())
	assert.Equal(t, wantPartial, partial.OrDefault())
	assert.Equal(t, HealthCheck{FailureThreshold: 9}, partial, "the receiver is not changed")

	copied := own.OrDefault()
	copied.ExpectedStatusCodes[0] = 200
	assert.EqualValues(t, 418, own.ExpectedStatusCodes[0], "nor shared")
}

func TestExpects(t *testing.T) {
	hc := HealthCheck{ExpectedStatusCodes: []int32{200, 204}}
	assert.True(t, hc.Expects(204))
	assert.False(t, hc.Expects(404))
	assert.False(t, (&HealthCheck{}).Expects(200))
	assert.False(t, hc.Expects(0))
}

func TestURLs(t *testing.T) {
	hc := HealthCheck{ProbeURL: "https://a.example/"}
	assert.Equal(t, []string{"https://a.example/"}, hc.URLs())
	hc.ProbeURLs = []ProbeURL{"https://b.example/", "https://c.example/"}
	assert.Equal(t, []string{"https://b.example/", "https://c.example/"}, hc.URLs(), "in the place of probeURL, which has a default")
}

func TestAnExitProofReportsLeaksByDefault(t *testing.T) {
	hc := HealthCheck{ExitProof: &ExitProof{}}
	assert.Equal(t, ReportHeaderLeak, hc.OrDefault().ExitProof.OnHeaderLeak)
	assert.Empty(t, hc.ExitProof.OnHeaderLeak, "the receiver is not changed")
	assert.Nil(t, (&HealthCheck{}).OrDefault().ExitProof)
}

func TestEffectiveScheme(t *testing.T) {
	external := func(s Scheme) *Proxy {
		return &Proxy{Spec: ProxySpec{Mode: ModeExternal, Endpoint: &Endpoint{Host: "h", Port: 1, Scheme: s}}}
	}
	assert.Equal(t, SchemeHTTPS, external(SchemeHTTPS).EffectiveScheme())
	assert.Equal(t, SchemeHTTP, external("").EffectiveScheme())
	assert.Equal(t, SchemeHTTP, (&Proxy{Spec: ProxySpec{Mode: ModeManaged}}).EffectiveScheme())
}

func TestInstanceName(t *testing.T) {
	assert.Equal(t, "proxy-jppvj6uamlskl2yh", InstanceName("7d1b1c9e-1111-4222-8333-444455556666"), "golden: a change renames every instance out there")
	seen := make(map[string]bool, 10_000)
	for i := range 10_000 {
		name := InstanceName(types.UID(fmt.Sprintf("7d1b1c9e-0000-4000-8000-%012d", i)))
		require.Regexp(t, `^proxy-[a-z2-7]{16}$`, name)
		seen[name] = true
	}
	assert.Len(t, seen, 10_000)
	assert.Empty(t, validation.IsDNS1123Label(InstanceName("x")))
}

func TestExternalInstanceID(t *testing.T) {
	id := ExternalInstanceID(Endpoint{Host: "192.0.2.7", Port: 3128})
	assert.Equal(t, "external-yxdhna2bpnwmir6j", id, "golden: a change makes all verdicts on External proxies stale")
	for name, other := range map[string]Endpoint{
		"host": {Host: "192.0.2.8", Port: 3128},
		"port": {Host: "192.0.2.7", Port: 3129},
		// Without brackets these two would run into one another.
		"IPv6":   {Host: "2001:db8::1", Port: 23},
		"scheme": {Host: "192.0.2.7", Port: 3128, Scheme: SchemeHTTPS},
	} {
		assert.NotEqual(t, id, ExternalInstanceID(other), name)
	}
	assert.Equal(t, id, ExternalInstanceID(Endpoint{Host: "192.0.2.7", Port: 3128, Scheme: SchemeHTTP}), "written out or not")
	assert.NotEqual(t, ExternalInstanceID(Endpoint{Host: "2001:db8::1", Port: 23}), ExternalInstanceID(Endpoint{Host: "2001:db8:", Port: 123}))
}
