package gcp

import (
	"crypto/sha256"
	"encoding/hex"
	"regexp"
	"strconv"
	"strings"

	"cloud.google.com/go/compute/apiv1/computepb"
	"k8s.io/utils/ptr"

	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/api/v1alpha1"
	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/cloud/provider"
)

// metadataPort is the metadata key that a baked image reads its port from.
const metadataPort = "crawl-port"

// buildInsert returns the insert call for req. It is pure. Its error lists every
// missing or wrong field.
func buildInsert(cfg Config, req provider.InsertRequest) (*computepb.InsertInstanceRequest, error) {
	want := req.Want
	p := want.Placement
	p.Zone = req.Zone // one of the zone and its fallbacks
	if err := cfg.Check(p, want.UserData); err != nil {
		return nil, err
	}
	instance := &computepb.Instance{
		Name:              ptr.To(req.Name),
		Description:       ptr.To("Crawling proxy " + want.Namespace + "/" + want.Proxy + " of installation " + req.Installation),
		MachineType:       ptr.To(qualified(p.MachineType, "zones/"+p.Zone+"/machineTypes/")),
		Labels:            labels(req),
		Tags:              &computepb.Tags{Items: cfg.Tags(p)},
		Disks:             []*computepb.AttachedDisk{bootDisk(p)},
		NetworkInterfaces: []*computepb.NetworkInterface{networkInterface(cfg, p)},
		Metadata:          metadata(cfg, want.UserData, want.Port),
	}
	if p.Spot {
		// Compute deletes a preempted Spot VM instead of stopping it, which would keep
		// its name and cost its disk. Spot allows no restart or maintenance policy.
		instance.Scheduling = &computepb.Scheduling{ProvisioningModel: ptr.To("SPOT"), InstanceTerminationAction: ptr.To("DELETE")}
	}
	if cfg.ServiceAccount != "" {
		instance.ServiceAccounts = []*computepb.ServiceAccount{{Email: ptr.To(cfg.ServiceAccount), Scopes: []string{
			"https://www.googleapis.com/auth/logging.write", "https://www.googleapis.com/auth/monitoring.write",
		}}}
	}
	return &computepb.InsertInstanceRequest{
		Project: cfg.Project, Zone: req.Zone, RequestId: ptr.To(req.RequestID), InstanceResource: instance,
	}, nil
}

func bootDisk(p v1alpha1.Placement) *computepb.AttachedDisk {
	params := &computepb.AttachedDiskInitializeParams{SourceImage: ptr.To(qualified(p.Image, "global/images/"))}
	if p.DiskSizeGB != 0 {
		params.DiskSizeGb = ptr.To(p.DiskSizeGB)
	}
	return &computepb.AttachedDisk{
		Boot: ptr.To(true), AutoDelete: ptr.To(true), Type: ptr.To("PERSISTENT"), InitializeParams: params,
	}
}

// networkInterface has an ephemeral public address, since natIP is omitted.
func networkInterface(cfg Config, p v1alpha1.Placement) *computepb.NetworkInterface {
	network, subnetwork := cfg.Network, cfg.Subnetwork
	if p.Network != "" || p.Subnetwork != "" {
		network, subnetwork = p.Network, p.Subnetwork
	}
	if network == "" && subnetwork == "" {
		network = "default"
	}
	nic := &computepb.NetworkInterface{AccessConfigs: []*computepb.AccessConfig{{
		Name: ptr.To("External NAT"), Type: ptr.To("ONE_TO_ONE_NAT"),
	}}}
	if network != "" {
		nic.Network = ptr.To(qualified(network, "global/networks/"))
	}
	if subnetwork != "" {
		nic.Subnetwork = ptr.To(qualified(subnetwork, "regions/"+region(p.Zone)+"/subnetworks/"))
	}
	return nic
}

// qualified returns a resource name with its folder, unless it has one.
func qualified(name, folder string) string {
	if strings.Contains(name, "/") {
		return name
	}
	return folder + name
}

// region of a zone: its name up to the last dash.
func region(zone string) string {
	if i := strings.LastIndex(zone, "-"); i > 0 {
		return zone[:i]
	}
	return zone
}

func metadata(cfg Config, userData string, port int32) *computepb.Metadata {
	items := []*computepb.Items{{Key: ptr.To(metadataPort), Value: ptr.To(strconv.Itoa(int(port)))}}
	if userData != "" {
		items = append(items, &computepb.Items{Key: ptr.To(cfg.UserDataKey), Value: ptr.To(userData)})
	}
	return &computepb.Metadata{Items: items}
}

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
