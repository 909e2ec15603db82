package gcp

import (
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
