package gcp

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"time"

	"cloud.google.com/go/compute/apiv1/computepb"

	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/api/adapter"
	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/cloud/provider"
)

var providerIDPattern = regexp.MustCompile(`^zones/([a-z]([-a-z0-9]{0,61}[a-z0-9])?)/instances/([a-z]([-a-z0-9]{0,61}[a-z0-9])?)$`)

// ProviderID is zones/ZONE/instances/NAME.
func (c *Cloud) ProviderID(r provider.Ref) string {
	return "zones/" + r.Zone + "/instances/" + r.Name
}

// ParseProviderID is the inverse of ProviderID.
func (c *Cloud) ParseProviderID(id string) (provider.Ref, error) {
	m := providerIDPattern.FindStringSubmatch(id)
	if m == nil {
		return provider.Ref{}, fmt.Errorf("provider id %q: want zones/ZONE/instances/NAME", id)
	}
	return provider.Ref{Zone: m[1], Name: m[3]}, nil
}

// fromWire maps Compute's VM to the contract.
func fromWire(zone string, in *computepb.Instance) provider.Instance {
	ip := natIP(in)
	state, leaving := state(in.GetStatus(), ip)
	port, _ := strconv.ParseInt(in.GetLabels()[LabelPort], 10, 32) // 0 when a user edited the label
	out := provider.Instance{
		Ref:          provider.Ref{Zone: zone, Name: in.GetName()},
		ID:           strconv.FormatUint(in.GetId(), 10),
		UID:          in.GetLabels()[LabelUID],
		Installation: in.GetLabels()[LabelInstallation],
		SpecHash:     in.GetLabels()[LabelSpecHash],
		Port:         int32(port),
		State:        state,
		Leaving:      leaving,
		Status:       in.GetStatus(),
		IP:           ip,
	}
	// Timestamps carry the UTC offset of California, which must not be cut off.
	if created, err := time.Parse(time.RFC3339, in.GetCreationTimestamp()); err == nil {
		out.CreatedAt = created.UTC()
	}
	return out
}

func natIP(in *computepb.Instance) string {
	for _, nic := range in.GetNetworkInterfaces() {
		for _, access := range nic.GetAccessConfigs() {
			if access.GetNatIP() != "" {
				return access.GetNatIP()
			}
		}
	}
	return ""
}

// state maps the statuses of computepb.Instance_Status. An unknown status, and
// REPAIRING, from which Compute restores the VM, never cause a delete: the VM exists
// and does not serve. leaving means that a delete would be refused now.
func state(status, ip string) (s adapter.State, leaving bool) {
	switch status {
	case "RUNNING":
		if ip != "" {
			return adapter.StateRunning, false
		}
	case "PENDING_STOP":
		return adapter.StateStopping, false
	case "STOPPING", "DEPROVISIONING", "SUSPENDING":
		return adapter.StateStopping, true
	case "STOPPED", "TERMINATED", "SUSPENDED":
		return adapter.StateStopped, false
	}
	return adapter.StateProvisioning, false
}

// zoneOf is the last part of a zone's URL.
func zoneOf(url string) string { return url[strings.LastIndex(url, "/")+1:] }
