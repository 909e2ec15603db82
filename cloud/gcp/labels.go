package gcp

import (
	"crypto/sha256"
	"encoding/hex"
	"regexp"
	"strconv"
	"strings"

	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/cloud/provider"
)

// Labels of our VMs. They are part of the insert call, never added later: a VM
// without them would be nobody's.
const (
	// LabelInstallation tells installations that share a project apart.
	LabelInstallation = "crawl-installation"
	// LabelUID is the UID of the Proxy: the proof of ownership.
	LabelUID = "crawl-proxy-uid"
	// LabelSpecHash is what the VM was made from.
	LabelSpecHash = "crawl-spec-hash"
	// LabelPort is the port that it was made for.
	LabelPort = "crawl-port"
	// LabelNamespace and LabelProxy are for people and bills.
	LabelNamespace = "crawl-namespace"
	LabelProxy     = "crawl-proxy"
)

// maxLabelValue is Compute's bound on label values, in bytes of ASCII.
const maxLabelValue = 63

var labelValuePattern = regexp.MustCompile(`^[a-z0-9_-]{0,63}$`)

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

// labelValue makes any name a label value. Names of Kubernetes objects may have
// dots and 253 characters; what does not fit is replaced, shortened, and told
// apart by a digest.
func labelValue(name string) string {
	if labelValuePattern.MatchString(name) {
		return name
	}
	clean := strings.Map(func(r rune) rune {
		if r >= 'a' && r <= 'z' || r >= '0' && r <= '9' || r == '_' || r == '-' {
			return r
		}
		return '-'
	}, strings.ToLower(name))
	sum := sha256.Sum256([]byte(name))
	suffix := "-" + hex.EncodeToString(sum[:5])
	return clean[:min(len(clean), maxLabelValue-len(suffix))] + suffix
}
