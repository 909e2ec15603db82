package gcp

import (
	"context"
	"strconv"

	"cloud.google.com/go/compute/apiv1/computepb"
	"k8s.io/utils/ptr"

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
