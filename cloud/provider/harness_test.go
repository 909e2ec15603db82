package provider

import (
	"context"
	"time"
)

// fakeCloud returns the same error from every call and counts them.
type fakeCloud struct {
	err   error
	calls []string
	// deadline of the last call's context.
	deadline time.Time
}

func (f *fakeCloud) call(ctx context.Context, op string) error {
	f.calls = append(f.calls, op)
	f.deadline, _ = ctx.Deadline()
	return f.err
}

func (f *fakeCloud) Account() string                     { return "fake/account" }
func (f *fakeCloud) MaxInstances() int                   { return 0 }
func (f *fakeCloud) ProviderID(r Ref) string             { return r.Zone + "/" + r.Name }
func (f *fakeCloud) ParseProviderID(string) (Ref, error) { return Ref{}, nil }

func (f *fakeCloud) Insert(ctx context.Context, _ InsertRequest) (Operation, error) {
	return Operation{}, f.call(ctx, "insert")
}

func (f *fakeCloud) Get(ctx context.Context, _ Ref) (Instance, error) {
	return Instance{}, f.call(ctx, "get")
}

func (f *fakeCloud) Delete(ctx context.Context, _ Ref, _ string) (Operation, error) {
	return Operation{}, f.call(ctx, "delete")
}

func (f *fakeCloud) Operation(ctx context.Context, _, _ string) (Operation, error) {
	return Operation{}, f.call(ctx, "operation")
}

func (f *fakeCloud) List(ctx context.Context) (Listing, error) {
	return Listing{}, f.call(ctx, "list")
}

// callAll makes every call once and returns the errors by operation.
func callAll(c Cloud) map[string]error {
	ctx := context.Background()
	errs := map[string]error{}
	_, errs["insert"] = c.Insert(ctx, InsertRequest{})
	_, errs["get"] = c.Get(ctx, Ref{})
	_, errs["delete"] = c.Delete(ctx, Ref{}, "")
	_, errs["operation"] = c.Operation(ctx, "", "")
	_, errs["list"] = c.List(ctx)
	return errs
}
