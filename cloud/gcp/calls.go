package gcp

import (
	"context"
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"time"

	"cloud.google.com/go/compute/apiv1/computepb"
	"k8s.io/utils/ptr"

	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/api/adapter"
	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/cloud/provider"
)

// Insert is instances.insert.
func (c *Cloud) Insert(ctx context.Context, req provider.InsertRequest) (provider.Operation, error) {
	target := c.ProviderID(req.Ref)
	built, err := buildInsert(c.cfg, req)
	if err != nil {
		return provider.Operation{}, &provider.Error{Class: provider.ErrPermanent, Op: "insert", Target: target, Err: err}
	}
	op, err := c.instances.Insert(ctx, built)
	if err != nil {
		return provider.Operation{}, fromHTTP("insert", target, err, req.Want.UserData)
	}
	return operation("insert", target, req.Zone, op.Proto(), req.Want.UserData), nil
}

// Get is instances.get.
func (c *Cloud) Get(ctx context.Context, ref provider.Ref) (provider.Instance, error) {
	in, err := c.instances.Get(ctx, &computepb.GetInstanceRequest{Project: c.cfg.Project, Zone: ref.Zone, Instance: ref.Name})
	if err != nil {
		return provider.Instance{}, fromHTTP("get", c.ProviderID(ref), err, "")
	}
	return fromWire(ref.Zone, in), nil
}

// Delete is instances.delete.
func (c *Cloud) Delete(ctx context.Context, ref provider.Ref, requestID string) (provider.Operation, error) {
	op, err := c.instances.Delete(ctx, &computepb.DeleteInstanceRequest{
		Project: c.cfg.Project, Zone: ref.Zone, Instance: ref.Name, RequestId: ptr.To(requestID),
	})
	if err != nil {
		return provider.Operation{}, fromHTTP("delete", c.ProviderID(ref), err, "")
	}
	return operation("delete", c.ProviderID(ref), ref.Zone, op.Proto(), ""), nil
}

// Operation is zoneOperations.get.
func (c *Cloud) Operation(ctx context.Context, zone, name string) (provider.Operation, error) {
	target := "zones/" + zone + "/operations/" + name
	op, err := c.operations.Get(ctx, &computepb.GetZoneOperationRequest{Project: c.cfg.Project, Zone: zone, Operation: name})
	if err != nil {
		return provider.Operation{}, fromHTTP("operation", target, err, "")
	}
	return operation(op.GetOperationType(), target, zone, op, ""), nil
}

// operation maps an operation of kind insert or delete.
func operation(kind, target, zone string, op *computepb.Operation, secret string) provider.Operation {
	out := provider.Operation{
		Zone: zone, Name: op.GetName(), Done: op.GetStatus() == computepb.Operation_DONE,
	}
	if op.GetTargetId() != 0 {
		out.TargetID = strconv.FormatUint(op.GetTargetId(), 10)
	}
	if out.Done {
		out.Err = fromOperation(kind, target, op, secret)
	}
	return out
}

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
