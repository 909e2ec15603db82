package gcp

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/api/providers"
	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/api/v1alpha1"
)

func TestBuildInsertNamesWhatIsMissing(t *testing.T) {
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

// Row D10: Google's Debian images have no cloud-init and ignore user data
// without a word, so that such a VM would be billed and never serve.
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

// Row D11: a script saved on Windows never starts, and its VM would be replaced
// over and over.
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

// Row D8: Compute refuses label values with capitals, dots or more than 63
// characters; names of Kubernetes objects have dots and up to 253.
func TestD8LabelValuesFitWhateverTheName(t *testing.T) {
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
