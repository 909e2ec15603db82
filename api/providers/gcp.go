package providers

import (
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"unicode/utf8"

	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/api/v1alpha1"
)

// Keys of the instance metadata for user data.
const (
	KeyUserData      = "user-data"      // read by cloud-init, which Ubuntu and Container-Optimized OS have
	KeyStartupScript = "startup-script" // read by Google's guest agent, which runs it at every boot. cloud-init does not read it
)

// Compute's bounds on one metadata value, in bytes, and on network tags, from the
// comments of computepb.Metadata and computepb.Items.
const (
	maxMetadataValue = 262_144
	maxTags          = 64
)

// GCP is the gcp block of a provider.
type GCP struct {
	Project     string   `json:"project"` // of the VMs and their billing. Required
	Network     string   `json:"network"` // Network and Subnetwork of VMs whose placement has none. Default the network called default
	Subnetwork  string   `json:"subnetwork"`
	NetworkTags []string `json:"networkTags"` // of every VM, for firewall rules. Default crawl-proxy
	// ServiceAccount of VMs, an e-mail address, with the scopes to write logs and
	// metrics. Default none: a proxy needs no identity, and without one no client can
	// steal its tokens through the proxy.
	ServiceAccount string `json:"serviceAccount"`
	UserDataKey    string `json:"userDataKey"`  // KeyUserData (the default) or KeyStartupScript
	MaxInstances   int    `json:"maxInstances"` // of this installation in the project; 0 means no limit
}

var (
	projectPattern = regexp.MustCompile(`^([a-z0-9.-]+:)?[a-z][-a-z0-9]{0,29}$`)
	tagPattern     = regexp.MustCompile(`^[a-z]([-a-z0-9]{0,61}[a-z0-9])?$`)
)

// Complete sets defaults. Its error lists everything that is wrong.
func (c *GCP) Complete() error {
	if c.NetworkTags == nil {
		c.NetworkTags = []string{"crawl-proxy"}
	}
	if c.UserDataKey == "" {
		c.UserDataKey = KeyUserData
	}
	var p problems
	p.refuse(!projectPattern.MatchString(c.Project), "gcp.project %q: want a project id, such as my-project-1", c.Project)
	for _, tag := range c.NetworkTags {
		p.refuse(!tagPattern.MatchString(tag), "gcp.networkTags %q: want 1 to 63 lower-case letters, digits and -, beginning with a letter", tag)
	}
	p.refuse(c.UserDataKey != KeyUserData && c.UserDataKey != KeyStartupScript, "gcp.userDataKey %q: want %s or %s", c.UserDataKey, KeyUserData, KeyStartupScript)
	p.refuse(c.MaxInstances < 0, "gcp.maxInstances must not be negative")
	return errors.Join(p...)
}

// Tags are the network tags of a VM with that placement, sorted.
func (c *GCP) Tags(p v1alpha1.Placement) []string {
	out := slices.Clone(c.NetworkTags)
	for _, tag := range p.NetworkTags {
		out = append(out, string(tag))
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// Check returns why no VM can be made from that placement and user data: every
// missing or invalid field. Fields that decide the cost have no defaults. The error
// does not contain user data.
func (c *GCP) Check(p v1alpha1.Placement, userData string) error {
	var errs problems
	errs.refuse(p.Zone == "", "placement.zone is required, such as europe-west1-b")
	errs.refuse(p.MachineType == "", "placement.machineType is required, such as e2-micro")
	errs.refuse(p.Image == "", "placement.image is required, such as projects/ubuntu-os-cloud/global/images/family/ubuntu-minimal-2404-lts-amd64")
	errs.refuse(len(c.Tags(p)) > maxTags, "placement.networkTags and gcp.networkTags are %d tags together: want at most %d", len(c.Tags(p)), maxTags)
	errs.refuse(len(userData) > maxMetadataValue, "user data has %d bytes: Compute takes %d", len(userData), maxMetadataValue)
	errs.refuse(!utf8.ValidString(userData), "user data is not UTF-8 text, and Compute takes no other")
	errs.refuse(scriptWithCR(userData), "user data is a script with Windows line ends (CR LF), which no interpreter would be found for: save it with LF")
	errs.refuse(userData != "" && c.UserDataKey == KeyUserData && strings.Contains(p.Image, "debian-cloud/"),
		"image %s has no cloud-init and would ignore the user data: use an Ubuntu or Container-Optimized OS image, or set gcp.userDataKey to %s", p.Image, KeyStartupScript)
	return errors.Join(errs...)
}

// problems are the faults that were found so far.
type problems []error

func (p *problems) refuse(bad bool, format string, args ...any) {
	if bad {
		*p = append(*p, fmt.Errorf(format, args...))
	}
}

// scriptWithCR matches a first line such as "#!/bin/sh\r\n", with which the kernel
// looks for an interpreter called "sh\r".
func scriptWithCR(data string) bool {
	first, _, more := strings.Cut(data, "\n")
	return more && strings.HasPrefix(first, "#!") && strings.HasSuffix(first, "\r")
}
