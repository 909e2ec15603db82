package webhooks

import (
	"maps"
	"os"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"sigs.k8s.io/yaml"

	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/api/v1alpha1"
	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/webhooks/config"
	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/webhooks/proxy"
)

// The example Proxies fit the types, the CRD and the example provider config,
// and the hooks know what to do with them.
func TestExampleProxies(t *testing.T) {
	providers, err := config.LoadProviders("../examples/providers.yaml")
	require.NoError(t, err)
	clouds, err := config.LoadProviders("../examples/providers-gcp.yaml")
	require.NoError(t, err)
	maps.Copy(providers, clouds)
	for file, probing := range map[string]bool{"proxy-managed.yaml": false, "proxy-external.yaml": true, "proxy-proved.yaml": true, "proxy-gcp.yaml": false} {
		t.Run(file, func(t *testing.T) {
			b, err := os.ReadFile("../examples/" + file)
			require.NoError(t, err)
			var p v1alpha1.Proxy
			require.NoError(t, yaml.UnmarshalStrict(b, &p))
			var raw map[string]any
			require.NoError(t, yaml.Unmarshal(b, &raw))
			assert.Empty(t, proxySchema(t).check("", raw))

			p.UID, p.Namespace, p.Generation = "uid", "crawl", 1
			o := observationOf(&p)
			if provider := providers[p.Spec.Provider]; provider != nil {
				o.Provider = &provider.Provider
			}
			if p.Spec.CloudInit != nil {
				o.CloudInit.Content = p.Spec.CloudInit.Inline
			}
			o.Wanted = o.Want()
			d, err := proxy.Decide(o)
			require.NoError(t, err)
			assert.Equal(t, probing, d.Probe != nil)
			assert.NotEqual(t, v1alpha1.PhaseFailed, d.Status.Phase)
		})
	}
}
