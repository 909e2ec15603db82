package gcp

import (
	"crypto/sha256"
	"encoding/hex"
	"regexp"
	"strconv"
	"strings"

	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/cloud/provider"
)

// Labels of our VMs. They are part of the insert call and never added later, so
// that no VM exists without an owner.
const (
	LabelInstallation = "crawl-installation" // separates installations that share a project
	LabelUID          = "crawl-proxy-uid"    // the UID of the Proxy, which proves ownership
	LabelSpecHash     = "crawl-spec-hash"    // the hash of the spec that the VM was made from
	LabelPort         = "crawl-port"         // the port that it was made for
	LabelNamespace    = "crawl-namespace"    // LabelNamespace and LabelProxy are for users and billing reports
	LabelProxy        = "crawl-proxy"
)

// maxLabelValue is Compute's bound on label values, in bytes of ASCII.
const maxLabelValue = 63

var (
	labelValuePattern = regexp.MustCompile(`^[a-z0-9_-]{0,63}$`)
	notInLabels       = regexp.MustCompile(`[^a-z0-9_-]`)
)

func labels(req provider.InsertRequest) map[string]string {
	return map[string]string{
		LabelInstallation: req.Installation,
		LabelUID:          req.Want.UID,
		LabelSpecHash:     req.Want.SpecHash,
		LabelPort:         strconv.Itoa(int(req.Want.Port)),
		LabelNamespace:    labelValue(req.Want.Namespace),
		LabelProxy:        labelValue(req.Want.Proxy),
	}
}

// labelValue makes a name of Kubernetes, which may have dots and 253 characters, a
// label value. Other characters become dashes, and a digest keeps names distinct.
func labelValue(name string) string {
	if labelValuePattern.MatchString(name) {
		return name
	}
	clean := notInLabels.ReplaceAllString(strings.ToLower(name), "-")
	sum := sha256.Sum256([]byte(name))
	suffix := "-" + hex.EncodeToString(sum[:5])
	return clean[:min(len(clean), maxLabelValue-len(suffix))] + suffix
}
