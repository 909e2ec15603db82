package hooktest

import (
	"log/slog"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	"k8s.io/utils/clock"

	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/stack/controlplane/controlplanetest"
	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/webhooks"
	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/webhooks/config"
	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/webhooks/proxy"
)

// shared is the API server of all tests here.
var shared controlplanetest.Shared

func TestMain(m *testing.M) { goleak.VerifyTestMain(shared.Main(m)) }

const provider = "pods"

// release is a release of webhooks, with its settings.
type release struct {
	providers string
	secrets   bool
	timing    proxy.Timing
	events    webhooks.Recorder
}

const providers = `
providers:
- name: ` + provider + `
  type: kubernetes
  kubernetes: {image: "squid:1", allowClients: [10.0.0.0/8]}
`

// quick are short poll intervals; shorter ones would keep a loaded machine busy.
func quick(drift time.Duration) proxy.Timing {
	return proxy.Timing{ProvisioningDeadline: time.Hour, ProvisioningPoll: time.Second, DriftPoll: drift, RemovalPoll: time.Second, BudgetPoll: time.Second}
}

// hooks returns the hooks of a release.
func (r release) hooks(t testing.TB) *webhooks.Hooks {
	t.Helper()
	limit, err := webhooks.ParseLimit("20%")
	require.NoError(t, err)
	loaded, err := config.ParseProviders([]byte(r.providers))
	require.NoError(t, err)
	return webhooks.New(webhooks.Options{
		Providers: loaded, CloudInitSecrets: r.secrets, MaxReplacing: limit, Timing: r.timing, Events: r.events,
		Clock: clock.RealClock{}, Log: slog.New(slog.DiscardHandler), Registry: prometheus.NewRegistry(),
	})
}
