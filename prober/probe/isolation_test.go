package probe

import (
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/api/v1alpha1"
	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/internal/credentials"
	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/prober/probetest"
)

// A thousand probes at once, each through a proxy of its own that accepts only its
// own user, asks for its own target and answers with its own status: any state
// that two probes share shows as a wrong answer.
func TestConcurrentProbesShareNoState(t *testing.T) {
	const probes = 1000
	prober := New(nil)
	gate := make(chan struct{})
	var wg sync.WaitGroup
	for i := range probes {
		proxy := probetest.StartProxy(t, numbered(i))
		req := numberedRequest(proxy, i)
		wg.Go(func() {
			<-gate
			r := prober.Probe(t.Context(), req)
			assert.Equal(t, statusOf(i), r.HTTPStatus, "proxy %d: %s", i, r.Message)
			assert.Equal(t, Success, r.Outcome, "proxy %d: %s", i, r.Message)
			assert.Equal(t, fmt.Sprintf("target-%d.invalid answered %d through the proxy", i, statusOf(i)), r.Message)
		})
	}
	close(gate)
	wg.Wait()
}

func statusOf(i int) int { return 200 + i%400 }

func numbered(i int) probetest.Behaviour {
	user := strconv.Itoa(i)
	return probetest.Forward(nil, probetest.RequireBasic(user, "password-"+user), func(r *http.Request) int {
		if !strings.HasPrefix(r.Host, "target-"+user+".invalid") {
			return http.StatusBadRequest
		}
		return statusOf(i)
	})
}

func numberedRequest(p *probetest.Proxy, i int) Request {
	secret := credentials.New(strconv.Itoa(i), "password-"+strconv.Itoa(i))
	hc := v1alpha1.HealthCheck{
		ProbeURL:            fmt.Sprintf("http://target-%d.invalid/", i),
		Timeout:             metav1.Duration{Duration: time.Minute},
		ExpectedStatusCodes: []int32{int32(statusOf(i))},
	}
	return Request{Host: p.Host(), Port: p.Port(), HealthCheck: hc.OrDefault(), Credentials: &secret}
}
