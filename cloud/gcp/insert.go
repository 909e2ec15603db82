package gcp

import (
	"strconv"
	"strings"

	"cloud.google.com/go/compute/apiv1/computepb"
	"k8s.io/utils/ptr"

	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/api/v1alpha1"
	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/cloud/provider"
)

// metadataPort is the metadata key that tells a baked image its port.
const metadataPort = "crawl-port"

// buildInsert is the insert call for req. It is pure. Its error lists
// everything that is missing or does not fit.
func buildInsert(cfg Config, req provider.InsertRequest) (*computepb.InsertInstanceRequest, error) {
	want := req.Want
	checked := want.Placement
	checked.Zone = req.Zone // of all that may be tried
	if err := cfg.Check(checked, want.UserData); err != nil {
		return nil, err
	}
	instance := &computepb.Instance{
		Name:              ptr.To(req.Name),
		Description:       ptr.To("Crawling proxy " + want.Namespace + "/" + want.Proxy + " of installation " + req.Installation),
		MachineType:       ptr.To(machineType(req.Zone, want.Placement.MachineType)),
		Labels:            labels(req),
		Tags:              &computepb.Tags{Items: cfg.Tags(want.Placement)},
		Disks:             []*computepb.AttachedDisk{bootDisk(want.Placement)},
		NetworkInterfaces: []*computepb.NetworkInterface{networkInterface(cfg, req.Zone, want.Placement)},
		Metadata:          metadata(cfg, want.UserData, want.Port),
		Scheduling:        scheduling(want.Placement),
		ServiceAccounts:   serviceAccounts(cfg),
	}
	return &computepb.InsertInstanceRequest{
		Project:          cfg.Project,
		Zone:             req.Zone,
		RequestId:        ptr.To(req.RequestID),
		InstanceResource: instance,
	}, nil
}

func machineType(zone, name string) string {
	if strings.Contains(name, "/") {
		return name
	}
	return "zones/" + zone + "/machineTypes/" + name
}

func bootDisk(p v1alpha1.Placement) *computepb.AttachedDisk {
	image := p.Image
	if !strings.Contains(image, "/") {
		image = "global/images/" + image
	}
	params := &computepb.AttachedDiskInitializeParams{SourceImage: ptr.To(image)}
	if p.DiskSizeGB != 0 {
		params.DiskSizeGb = ptr.To(p.DiskSizeGB)
	}
	return &computepb.AttachedDisk{
		Boot:             ptr.To(true),
		AutoDelete:       ptr.To(true),
		Type:             ptr.To("PERSISTENT"),
		InitializeParams: params,
	}
}

// networkInterface has a public address of its own: ephemeral, since natIP is
// left out.
func networkInterface(cfg Config, zone string, p v1alpha1.Placement) *computepb.NetworkInterface {
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
		nic.Subnetwork = ptr.To(qualified(subnetwork, "regions/"+region(zone)+"/subnetworks/"))
	}
	return nic
}

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

// scheduling of a Spot VM lets Compute delete it, not stop it: a stopped one
// would keep its name and cost its disk. Restart and maintenance policies
// cannot be chosen for Spot. Nil leaves Compute's defaults.
func scheduling(p v1alpha1.Placement) *computepb.Scheduling {
	if !p.Spot {
		return nil
	}
	return &computepb.Scheduling{
		ProvisioningModel:         ptr.To("SPOT"),
		InstanceTerminationAction: ptr.To("DELETE"),
	}
}

func serviceAccounts(cfg Config) []*computepb.ServiceAccount {
	if cfg.ServiceAccount == "" {
		return nil
	}
	return []*computepb.ServiceAccount{{
		Email: ptr.To(cfg.ServiceAccount),
		Scopes: []string{
			"https://www.googleapis.com/auth/logging.write",
			"https://www.googleapis.com/auth/monitoring.write",
		},
	}}
}
