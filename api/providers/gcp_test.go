package providers

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/api/v1alpha1"
)

func TestCompleteSetsDefaults(t *testing.T) {
	c := GCP{Project: "example.com:my-project-1"}
	require.NoError(t, c.Complete())
	assert.Equal(t, GCP{Project: "example.com:my-project-1", NetworkTags: []string{"crawl-proxy"}, UserDataKey: KeyUserData}, c)

	c = GCP{Project: "p", NetworkTags: []string{}, UserDataKey: KeyStartupScript}
	require.NoError(t, c.Complete())
	assert.Empty(t, c.NetworkTags, "none is a choice")
	assert.Equal(t, KeyStartupScript, c.UserDataKey)
}

func TestCompleteListsAllErrors(t *testing.T) {
	c := GCP{Project: "My Project", NetworkTags: []string{"ok", "No"}, UserDataKey: "userdata", MaxInstances: -1}
	err := c.Complete()
	for _, want := range []string{`gcp.project "My Project"`, `gcp.networkTags "No"`, `gcp.userDataKey "userdata"`, "gcp.maxInstances"} {
		assert.ErrorContains(t, err, want)
	}
	assert.ErrorContains(t, (&GCP{}).Complete(), `gcp.project ""`)
}

func placement() v1alpha1.Placement {
	return v1alpha1.Placement{Zone: "europe-west1-b", MachineType: "e2-micro", Image: "projects/ubuntu-os-cloud/global/images/family/ubuntu-minimal-2404-lts-amd64"}
}

func TestCheck(t *testing.T) {
	c := GCP{Project: "p"}
	require.NoError(t, c.Complete())
	require.NoError(t, c.Check(placement(), "#!/bin/sh\ntrue\n"))
	require.NoError(t, c.Check(placement(), ""))
	for name, tt := range map[string]struct {
		change func(p *v1alpha1.Placement)
		data   string
		want   string
	}{
		"zone":         {func(p *v1alpha1.Placement) { p.Zone = "" }, "", "placement.zone is required"},
		"machine type": {func(p *v1alpha1.Placement) { p.MachineType = "" }, "", "placement.machineType is required"},
		"image":        {func(p *v1alpha1.Placement) { p.Image = "" }, "", "placement.image is required"},
		"tags": {func(p *v1alpha1.Placement) {
			for i := range 64 {
				p.NetworkTags = append(p.NetworkTags, v1alpha1.NetworkTag(fmt.Sprint("t", i)))
			}
		}, "", "are 65 tags together"},
		"large":     {func(*v1alpha1.Placement) {}, strings.Repeat("x", maxMetadataValue+1), "262145 bytes"},
		"not UTF-8": {func(*v1alpha1.Placement) {}, "\x1f\x8b", "not UTF-8"},
		"CR LF":     {func(*v1alpha1.Placement) {}, "#!/bin/sh\r\ntrue\r\n", "Windows line ends"},
		"debian": {func(p *v1alpha1.Placement) { p.Image = "projects/debian-cloud/global/images/family/debian-12" }, "#cloud-config\n",
			"has no cloud-init"},
	} {
		t.Run(name, func(t *testing.T) {
			p := placement()
			tt.change(&p)
			err := c.Check(p, tt.data)
			require.ErrorContains(t, err, tt.want)
			assert.NotContains(t, err.Error(), "\n", "one thing is wrong, and one is named")
		})
	}
	err := c.Check(v1alpha1.Placement{}, "")
	for _, want := range []string{"zone", "machineType", "image"} {
		assert.ErrorContains(t, err, "placement."+want+" is required")
	}
	c.UserDataKey = KeyStartupScript
	p := placement()
	p.Image = "projects/debian-cloud/global/images/family/debian-12"
	assert.NoError(t, c.Check(p, "#!/bin/sh\n"))
}
