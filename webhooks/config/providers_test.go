package config

import (
	"net/netip"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"

	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/api/providers"
	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/api/v1alpha1"
	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/webhooks/proxytest"
	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/webhooks/squid"
)

func TestLoadProvidersExample(t *testing.T) {
	p, err := LoadProviders("../../examples/providers.yaml")
	require.NoError(t, err)
	require.Contains(t, p, "pods")
	k := p["pods"].Pods
	assert.Equal(t, []int{80, 443}, k.AllowPorts)
	assert.Equal(t, parsePrefixes("10.0.0.0/8"), k.AllowClients)
	assert.Empty(t, k.AllowDestinations)
	assert.Equal(t, corev1.PullIfNotPresent, k.ImagePullPolicy)
}

const minimalProviders = `
providers:
- name: pods
  type: kubernetes
  kubernetes:
    image: squid
    allowClients: [10.0.0.0/8]
`

func TestParseProvidersDefaults(t *testing.T) {
	p, err := ParseProviders([]byte(minimalProviders))
	require.NoError(t, err)
	k := p["pods"].Pods
	assert.Equal(t, "100m", k.CPU.String())
	assert.Equal(t, "128Mi", k.Memory.String())
	assert.Equal(t, corev1.PullIfNotPresent, k.ImagePullPolicy)
	assert.Equal(t, []int{80, 443}, k.AllowPorts)
}

func TestParseProvidersEverything(t *testing.T) {
	p, err := ParseProviders([]byte(`
providers:
- name: a
  type: kubernetes
  kubernetes:
    image: registry.example.com/squid@sha256:abc
    imagePullPolicy: Always
    cpu: 1000m
    memory: 1024Mi
    allowClients: [10.0.0.0/8, "fd00::/8", 192.0.2.7/32]
    allowDestinations: [127.0.0.0/8, "fc00::/7"]
    allowPorts: [8443, 443, 443]
- name: b
  type: kubernetes
  kubernetes: {image: squid, allowClients: [10.0.0.0/8]}
`))
	require.NoError(t, err)
	require.Len(t, p, 2)
	assert.Equal(t, &squid.Template{Provider: "a",
		Image: "registry.example.com/squid@sha256:abc", ImagePullPolicy: corev1.PullAlways,
		CPU: p["a"].Pods.CPU, Memory: p["a"].Pods.Memory,
		AllowClients:      parsePrefixes("10.0.0.0/8", "fd00::/8", "192.0.2.7/32"),
		AllowDestinations: parsePrefixes("127.0.0.0/8", "fc00::/7"),
		AllowPorts:        []int{443, 8443},
	}, p["a"].Pods)
	assert.False(t, p["a"].IsCloud())
}

func TestCloudProviders(t *testing.T) {
	p, err := ParseProviders([]byte(minimalProviders + `
- name: gcp-us
  type: gcp
  gcp: {project: demo, network: crawl, networkTags: [proxy], userDataKey: startup-script, maxInstances: 20}
- name: gcp-eu
  type: gcp
  gcp: {project: demo}
`))
	require.NoError(t, err)
	assert.Equal(t, []string{"gcp-eu", "gcp-us"}, p.CloudProviders())
	assert.False(t, p["pods"].IsCloud())
	assert.Equal(t, &providers.GCP{Project: "demo", NetworkTags: []string{"crawl-proxy"}, UserDataKey: providers.KeyUserData}, p["gcp-eu"].Cloud)
	assert.Equal(t, &providers.GCP{Project: "demo", Network: "crawl", NetworkTags: []string{"proxy"}, UserDataKey: providers.KeyStartupScript, MaxInstances: 20}, p["gcp-us"].Cloud)
}

func TestParseProvidersForExternalProxiesAlone(t *testing.T) {
	p, err := ParseProviders([]byte("providers: []"))
	require.NoError(t, err)
	assert.NotNil(t, p)
	assert.Empty(t, p)
}

func TestParseProvidersRefuses(t *testing.T) {
	entry := func(lines string) string {
		return "providers:\n- name: pods\n  type: kubernetes\n  kubernetes:\n    image: squid\n" + lines
	}
	for name, tt := range map[string]struct {
		config string
		want   []string
	}{
		"nothing":             {"", []string{"providers: is missing", `"providers: []"`}},
		"null":                {"providers:", []string{"providers: is missing"}},
		"not YAML":            {"providers: [", []string{"YAML"}},
		"a list":              {"- name: x", []string{"cannot unmarshal array"}},
		"unknown key":         {minimalProviders + "extra: 1", []string{`unknown field "extra"`}},
		"unknown nested key":  {entry("    allowClient: [10.0.0.0/8]"), []string{`providers[0]: kubernetes: unknown field "allowClient"`}},
		"repeated key":        {minimalProviders + "providers: []", []string{"already set"}},
		"wrong type":          {entry("    allowClients: 10.0.0.0/8"), []string{"allowClients"}},
		"gcp, no project":     {"providers: [{name: g, type: gcp, gcp: {}}]", []string{`providers[0]: gcp.project ""`}},
		"gcp, unknown key":    {"providers: [{name: g, type: gcp, gcp: {project: x, zone: y}}]", []string{`providers[0]: gcp: unknown field "zone"`}},
		"gcp, bad tag":        {"providers: [{name: g, type: gcp, gcp: {project: x, networkTags: [A]}}]", []string{`providers[0]: gcp.networkTags "A"`}},
		"gcp, no block":       {"providers: [{name: g, type: gcp}]", []string{"providers[0].gcp: is missing"}},
		"gcp block under pod": {"providers: [{name: g, type: kubernetes, gcp: {project: x}}]", []string{"providers[0].gcp: does not fit type kubernetes"}},
		"unknown type":        {"providers: [{name: g, type: aws}]", []string{`providers[0].type: is "aws", want kubernetes or gcp`}},
		"no type":             {"providers: [{name: g}]", []string{"providers[0].type: is missing"}},
		"no block":            {"providers: [{name: g, type: kubernetes}]", []string{"providers[0].kubernetes: is missing"}},
		"no name":             {"providers: [{type: kubernetes, kubernetes: {image: x, allowClients: [10.0.0.0/8]}}]", []string{"providers[0].name"}},
		"bad name":            {"providers: [{name: Pods_1, type: kubernetes, kubernetes: {image: x, allowClients: [10.0.0.0/8]}}]", []string{"providers[0].name", "Pods_1"}},
		"taken name":          {minimalProviders + "- name: pods\n  type: kubernetes\n  kubernetes: {}\n", []string{`providers[1].name: "pods" is taken`}},
		"no image, no client": {"providers: [{name: g, type: kubernetes, kubernetes: {}}]", []string{"kubernetes.image: is missing", "kubernetes.allowClients: is missing"}},
		"open proxy":          {entry("    allowClients: [0.0.0.0/0]"), []string{"allowClients[0]: 0.0.0.0/0", "open proxy"}},
		"open proxy, IPv6":    {entry(`    allowClients: [10.0.0.0/8, "::/0"]`), []string{"allowClients[1]: ::/0", "open proxy"}},
		"open proxy, halves":  {entry("    allowClients: [0.0.0.0/1, 128.0.0.0/1]"), []string{"allowClients[0]", "allowClients[1]", "open proxy"}},
		"everything opened":   {entry("    allowClients: [10.0.0.0/8]\n    allowDestinations: [0.0.0.0/0]"), []string{"allowDestinations[0]", "metadata servers"}},
		"address, no range":   {entry("    allowClients: [10.0.0.1]"), []string{`allowClients[0]: "10.0.0.1" is not a CIDR range`}},
		"host bits":           {entry("    allowClients: [10.1.2.3/8]"), []string{"write 10.0.0.0/8, or 10.1.2.3/32"}},
		"mapped":              {entry(`    allowClients: ["::ffff:10.0.0.0/104"]`), []string{"write it as IPv4"}},
		"port 0":              {entry("    allowClients: [10.0.0.0/8]\n    allowPorts: [443, 0]"), []string{"allowPorts[1]: 0 is not a TCP port"}},
		"negative port":       {entry("    allowClients: [10.0.0.0/8]\n    allowPorts: [-1]"), []string{"allowPorts[0]: -1 is not a TCP port"}},
		"cpu":                 {entry("    allowClients: [10.0.0.0/8]\n    cpu: fast"), []string{`kubernetes.cpu: "fast"`, "100m"}},
		"negative memory":     {entry("    allowClients: [10.0.0.0/8]\n    memory: -1Gi"), []string{`kubernetes.memory: "-1Gi"`}},
		"pull policy":         {entry("    allowClients: [10.0.0.0/8]\n    imagePullPolicy: Sometimes"), []string{"imagePullPolicy", "IfNotPresent"}},
		"everything at once":  {entry("    allowClients: [x]\n    cpu: x\n    allowPorts: [0]"), []string{"allowClients[0]", "cpu", "allowPorts[0]"}},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := ParseProviders([]byte(tt.config))
			require.ErrorIs(t, err, ErrBadProviders)
			for _, want := range tt.want {
				assert.Contains(t, err.Error(), want)
			}
		})
	}
}

func TestLoadProvidersNamesTheFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "providers.yaml")
	_, err := LoadProviders(path)
	require.ErrorIs(t, err, os.ErrNotExist)
	require.NoError(t, os.WriteFile(path, []byte("nonsense: 1"), 0o600))
	_, err = LoadProviders(path)
	require.ErrorIs(t, err, ErrBadProviders)
	assert.ErrorContains(t, err, path)
}

func FuzzParseProviders(f *testing.F) {
	example, err := os.ReadFile("../../examples/providers.yaml")
	require.NoError(f, err)
	for _, seed := range []string{string(example), minimalProviders, "", "providers: []", "providers: [{name: g, type: gcp, gcp: {project: x}}]", "providers: [{name: a, type: kubernetes, kubernetes: {image: x, allowClients: ['::/0']}}]"} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		p, err := ParseProviders(text)
		if err != nil {
			require.ErrorIs(t, err, ErrBadProviders)
			return
		}
		for name, provider := range p {
			require.NotNil(t, provider)
			if provider.IsCloud() {
				require.Error(t, provider.Cloud.Check(v1alpha1.Placement{}, ""))
				continue
			}
			require.Equal(t, name, provider.Pods.Provider)
			require.NotEmpty(t, provider.Pods.Image)
			require.NotEmpty(t, provider.Pods.AllowClients)
			for _, r := range provider.Pods.AllowClients {
				require.GreaterOrEqual(t, r.Bits(), 7, "an open proxy")
			}
			child := provider.Pods.Pod(proxytest.Managed(), "v1-x")
			require.NotNil(t, child)
		}
	})
}

func TestLoadProvidersRefusesEndlessFiles(t *testing.T) {
	_, err := LoadProviders("/dev/zero")
	assert.ErrorContains(t, err, "/dev/zero has more than 1048576 bytes; is it the provider config?")
}

func parsePrefixes(texts ...string) []netip.Prefix {
	out := make([]netip.Prefix, len(texts))
	for i, t := range texts {
		out[i] = netip.MustParsePrefix(t)
	}
	return out
}
