package gcp

import (
	"strings"
	"testing"

	"cloud.google.com/go/compute/apiv1/computepb"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/proto"

	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/api/providers"
	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/api/v1alpha1"
	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/cloud/provider"
)

func config(t *testing.T, change func(*Config)) Config {
	t.Helper()
	cfg := Config{Project: "demo"}
	if change != nil {
		change(&cfg)
	}
	require.NoError(t, cfg.Complete())
	return cfg
}

func build(t *testing.T, cfg Config, change func(*provider.InsertRequest)) *computepb.InsertInstanceRequest {
	t.Helper()
	req := testInsert()
	if change != nil {
		change(&req)
	}
	built, err := buildInsert(cfg, req)
	require.NoError(t, err)
	return built
}

func metadataOf(r *computepb.Instance) map[string]string {
	out := map[string]string{}
	for _, item := range r.GetMetadata().GetItems() {
		out[item.GetKey()] = item.GetValue()
	}
	return out
}

func TestBuildInsertFieldByField(t *testing.T) {
	req := testInsert()
	built, err := buildInsert(config(t, nil), req)
	require.NoError(t, err)

	assert.Equal(t, "demo", built.GetProject())
	assert.Equal(t, zoneB, built.GetZone())
	assert.Equal(t, req.RequestID, built.GetRequestId())
	assert.Nil(t, built.SourceInstanceTemplate)

	r := built.GetInstanceResource()
	assert.Equal(t, v1alpha1.InstanceName(testUID), r.GetName())
	assert.Equal(t, "Crawling proxy crawl/eu.a of installation inst", r.GetDescription())
	assert.Equal(t, "zones/europe-west1-b/machineTypes/e2-micro", r.GetMachineType())

	require.Len(t, r.GetDisks(), 1)
	disk := r.GetDisks()[0]
	assert.True(t, disk.GetBoot())
	assert.True(t, disk.GetAutoDelete(), "the disk goes with the VM")
	assert.Equal(t, "PERSISTENT", disk.GetType())
	assert.Equal(t, "projects/ubuntu-os-cloud/global/images/family/ubuntu-minimal-2404-lts-amd64", disk.GetInitializeParams().GetSourceImage())
	assert.Nil(t, disk.GetInitializeParams().DiskSizeGb, "as large as the image")

	require.Len(t, r.GetNetworkInterfaces(), 1)
	nic := r.GetNetworkInterfaces()[0]
	assert.Equal(t, "global/networks/default", nic.GetNetwork())
	assert.Nil(t, nic.Subnetwork)
	require.Len(t, nic.GetAccessConfigs(), 1)
	assert.Equal(t, "External NAT", nic.GetAccessConfigs()[0].GetName())
	assert.Equal(t, "ONE_TO_ONE_NAT", nic.GetAccessConfigs()[0].GetType())
	assert.Nil(t, nic.GetAccessConfigs()[0].NatIP, "ephemeral")

	assert.Equal(t, map[string]string{"user-data": "#cloud-config\n", "crawl-port": "3128"}, metadataOf(r))
	assert.Equal(t, map[string]string{
		"crawl-installation": "inst", "crawl-proxy-uid": testUID, "crawl-spec-hash": "v1-0a", "crawl-port": "3128",
		"crawl-namespace": "crawl", "crawl-proxy": labelValue("eu.a"),
	}, r.GetLabels())
	assert.Equal(t, []string{"crawl-proxy"}, r.GetTags().GetItems())
	assert.Empty(t, r.GetServiceAccounts(), "no identity to steal")
	assert.Nil(t, r.GetScheduling())
	assert.Nil(t, r.DeletionProtection)

	// Every other field is unset.
	rest := proto.CloneOf(r)
	rest.Name, rest.Description, rest.MachineType, rest.Disks, rest.NetworkInterfaces = nil, nil, nil, nil, nil
	rest.Metadata, rest.Labels, rest.Tags = nil, nil, nil
	assert.True(t, proto.Equal(&computepb.Instance{}, rest), "%v", rest)
}

// buildCase is the effect of one option on an insert.
type buildCase struct {
	cfg    func(*Config)
	change func(*provider.InsertRequest)
	got    func(*computepb.InsertInstanceRequest) any
	want   any
}

func (tt buildCase) run(t *testing.T) {
	assert.Equal(t, tt.want, tt.got(build(t, config(t, tt.cfg), tt.change)))
}

func place(f func(*v1alpha1.Placement)) func(*provider.InsertRequest) {
	return func(r *provider.InsertRequest) { f(&r.Want.Placement) }
}

func TestBuildInsertNetwork(t *testing.T) {
	nic := func(b *computepb.InsertInstanceRequest) any {
		n := b.GetInstanceResource().GetNetworkInterfaces()[0]
		return n.GetNetwork() + " " + n.GetSubnetwork()
	}
	for name, tt := range map[string]buildCase{
		"network of the placement": {
			change: place(func(p *v1alpha1.Placement) { p.Network = "crawl" }),
			got:    nic, want: "global/networks/crawl ",
		},
		"network in full": {
			change: place(func(p *v1alpha1.Placement) { p.Network = "projects/host/global/networks/shared" }),
			got:    nic, want: "projects/host/global/networks/shared ",
		},
		"subnetwork in the zone's region": {
			change: place(func(p *v1alpha1.Placement) { p.Subnetwork = "crawl" }),
			got:    nic, want: " regions/europe-west1/subnetworks/crawl",
		},
		"network and subnetwork of the config": {
			cfg: func(c *Config) { c.Network, c.Subnetwork = "n", "regions/r/subnetworks/s" },
			got: nic, want: "global/networks/n regions/r/subnetworks/s",
		},
		"placement over config as a whole": {
			cfg:    func(c *Config) { c.Network, c.Subnetwork = "n", "s" },
			change: place(func(p *v1alpha1.Placement) { p.Network = "other" }),
			got:    nic, want: "global/networks/other ",
		},
		"tags of both, sorted and once": {
			cfg:    func(c *Config) { c.NetworkTags = []string{"z", "a"} },
			change: place(func(p *v1alpha1.Placement) { p.NetworkTags = []v1alpha1.NetworkTag{"m", "a"} }),
			got:    func(b *computepb.InsertInstanceRequest) any { return b.GetInstanceResource().GetTags().GetItems() }, want: []string{"a", "m", "z"},
		},
		"no tags": {
			cfg: func(c *Config) { c.NetworkTags = []string{} },
			got: func(b *computepb.InsertInstanceRequest) any { return len(b.GetInstanceResource().GetTags().GetItems()) }, want: 0,
		},
	} {
		t.Run(name, tt.run)
	}
}

func TestBuildInsertMachine(t *testing.T) {
	for name, tt := range map[string]buildCase{
		"disk size": {
			change: place(func(p *v1alpha1.Placement) { p.DiskSizeGB = 20 }),
			got: func(b *computepb.InsertInstanceRequest) any {
				return b.GetInstanceResource().GetDisks()[0].GetInitializeParams().GetDiskSizeGb()
			}, want: int64(20),
		},
		"Spot": {
			change: place(func(p *v1alpha1.Placement) { p.Spot = true }),
			got: func(b *computepb.InsertInstanceRequest) any {
				s := b.GetInstanceResource().GetScheduling()
				return []any{s.GetProvisioningModel(), s.GetInstanceTerminationAction(), s.AutomaticRestart == nil, s.OnHostMaintenance == nil}
			}, want: []any{"SPOT", "DELETE", true, true},
		},
		"service account": {
			cfg: func(c *Config) { c.ServiceAccount = "logs@demo.iam.gserviceaccount.com" },
			got: func(b *computepb.InsertInstanceRequest) any {
				sa := b.GetInstanceResource().GetServiceAccounts()[0]
				return append([]string{sa.GetEmail()}, sa.GetScopes()...)
			}, want: []string{"logs@demo.iam.gserviceaccount.com", "https://www.googleapis.com/auth/logging.write", "https://www.googleapis.com/auth/monitoring.write"},
		},
		"user data as startup script": {
			cfg:  func(c *Config) { c.UserDataKey = providers.KeyStartupScript },
			got:  func(b *computepb.InsertInstanceRequest) any { return metadataOf(b.GetInstanceResource()) },
			want: map[string]string{"startup-script": "#cloud-config\n", "crawl-port": "3128"},
		},
		"no user data": {
			change: func(r *provider.InsertRequest) { r.Want.UserData = "" },
			got:    func(b *computepb.InsertInstanceRequest) any { return metadataOf(b.GetInstanceResource()) },
			want:   map[string]string{"crawl-port": "3128"},
		},
		"image of the project": {
			change: place(func(p *v1alpha1.Placement) { p.Image = "squid-7" }),
			got: func(b *computepb.InsertInstanceRequest) any {
				return b.GetInstanceResource().GetDisks()[0].GetInitializeParams().GetSourceImage()
			}, want: "global/images/squid-7",
		},
		"machine type in full": {
			change: place(func(p *v1alpha1.Placement) { p.MachineType = "zones/x/machineTypes/y" }),
			got:    func(b *computepb.InsertInstanceRequest) any { return b.GetInstanceResource().GetMachineType() }, want: "zones/x/machineTypes/y",
		},
		"another zone than the first": {
			change: func(r *provider.InsertRequest) { r.Zone = "us-central1-a" },
			got: func(b *computepb.InsertInstanceRequest) any {
				return b.GetZone() + " " + b.GetInstanceResource().GetMachineType()
			},
			want: "us-central1-a zones/us-central1-a/machineTypes/e2-micro",
		},
	} {
		t.Run(name, tt.run)
	}
}

func TestBuildInsertListsMissingFields(t *testing.T) {
	req := testInsert()
	req.Zone, req.Want.Placement = "", v1alpha1.Placement{}
	_, err := buildInsert(config(t, nil), req)
	for _, want := range []string{"placement.zone", "placement.machineType", "placement.image"} {
		assert.ErrorContains(t, err, want)
	}
}

func TestBuildInsertBoundsUserDataInBytes(t *testing.T) {
	req := testInsert()
	req.Want.UserData = strings.Repeat("é", 262_144/2)
	_, err := buildInsert(config(t, nil), req)
	require.NoError(t, err)
	req.Want.UserData += "x"
	_, err = buildInsert(config(t, nil), req)
	assert.ErrorContains(t, err, "262145 bytes")
}

func TestBuildInsertBoundsTags(t *testing.T) {
	req := testInsert()
	for i := range 64 {
		req.Want.Placement.NetworkTags = append(req.Want.Placement.NetworkTags, v1alpha1.NetworkTag("t"+strings.Repeat("x", i)))
	}
	_, err := buildInsert(config(t, nil), req)
	assert.ErrorContains(t, err, "65 tags")
}

// Row D10: Google's Debian images have no cloud-init and silently ignore user data, so
// that such a VM would be billed and never serve.
func TestD10DebianImageWithUserDataIsRefused(t *testing.T) {
	req := testInsert()
	req.Want.Placement.Image = "projects/debian-cloud/global/images/family/debian-12"
	_, err := buildInsert(config(t, nil), req)
	assert.ErrorContains(t, err, "no cloud-init")
	_, err = buildInsert(config(t, func(c *Config) { c.UserDataKey = providers.KeyStartupScript }), req)
	assert.NoError(t, err)
	req.Want.UserData = ""
	_, err = buildInsert(config(t, nil), req)
	assert.NoError(t, err, "nothing to ignore")
}

// Row D11: a script with Windows line ends never starts, and its VM would be replaced
// repeatedly.
func TestD11ScriptWithWindowsLineEndsIsRefused(t *testing.T) {
	for data, bad := range map[string]bool{
		"#!/bin/sh\r\necho\r\n":     true,
		"#!/bin/sh\necho '\r\n'\n":  false,
		"#cloud-config\r\na: b\r\n": false,
		"#!/bin/sh":                 false,
	} {
		req := testInsert()
		req.Want.UserData = data
		_, err := buildInsert(config(t, nil), req)
		if bad {
			assert.ErrorContains(t, err, "Windows line ends", "%q", data)
		} else {
			assert.NoError(t, err, "%q", data)
		}
	}
}

// Row D8: Compute refuses label values with capitals, dots or more than 63 characters;
// names of Kubernetes objects have dots and up to 253.
func TestD8LabelValuesOfAnyName(t *testing.T) {
	assert.Equal(t, "crawl", labelValue("crawl"))
	assert.NotEqual(t, labelValue("a.b"), labelValue("a-b"))
	assert.NotEqual(t, labelValue(strings.Repeat("a", 64)), labelValue(strings.Repeat("a", 65)))
	assert.True(t, strings.HasPrefix(labelValue("eu.a"), "eu-a-"), "people can still read it")
}

func FuzzLabelValue(f *testing.F) {
	f.Add("eu.a")
	f.Add(strings.Repeat("a.", 126))
	f.Add("Ä\xff")
	f.Fuzz(func(t *testing.T, name string) {
		value := labelValue(name)
		require.Regexp(t, `^[a-z0-9_-]{0,63}$`, value)
		require.Equal(t, value, labelValue(name))
	})
}

func TestConfigRefuses(t *testing.T) {
	bad := Config{Project: "Demo", NetworkTags: []string{"Crawl"}, UserDataKey: "script", MaxInstances: -1}
	err := bad.Complete()
	for _, want := range []string{"gcp.project", "gcp.networkTags", "gcp.userDataKey", "gcp.maxInstances"} {
		assert.ErrorContains(t, err, want)
	}
	for _, project := range []string{"demo", "my-project-1", "example.com:my-project"} {
		assert.NoError(t, (&Config{Project: project}).Complete(), project)
	}
}
