package providertest

import (
	"context"

	"github.com/google/uuid"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/api/v1alpha1"
	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/cloud/provider"
)

func life(b *check) {
	req := b.request(1)
	vm := b.made(req)
	assert.NotEmpty(b, vm.IP, "running means that it has an address")
	assert.NotEmpty(b, vm.Status, "people want the provider's word for it")
	assert.False(b, vm.Leaving)
	listing := b.list()
	require.Len(b, listing.Instances, 1)
	assert.Equal(b, vm, listing.Instances[0], "a list and a read say the same")
	assert.True(b, listing.Complete())
	assert.True(b, listing.Covers(req.Zone))
	b.gone(req.Ref)
	assert.Empty(b, b.list().Instances)
}

func (b *check) list() provider.Listing {
	b.Helper()
	listing, err := b.Cloud.List(b.Context())
	require.NoError(b, err)
	return listing
}

// labels identify an instance later, for example for the collector after a crash right
// after the insert.
func labels(b *check) {
	req := b.request(1)
	b.insert(req)
	got := b.get(req.Ref)
	assert.Equal(b, req.Ref, got.Ref)
	assert.Equal(b, req.Want.UID, got.UID)
	assert.Equal(b, Installation, got.Installation)
	assert.Equal(b, req.Want.SpecHash, got.SpecHash)
	assert.Equal(b, req.Want.Port, got.Port)
	assert.NotEmpty(b, got.ID)
	assert.False(b, got.CreatedAt.IsZero(), "the collector spares what is young")
	assert.Equal(b, got.CreatedAt.UTC(), got.CreatedAt)
}

func repeatedInsert(b *check) {
	req := b.request(1)
	first := b.insert(req)
	again := b.insert(req)
	assert.Equal(b, first.Name, again.Name)
	assert.Len(b, b.list().Instances, 1)
}

func takenName(b *check) {
	req := b.request(1)
	b.made(req)
	other := b.request(2)
	other.Name = req.Name
	op, err := b.Cloud.Insert(b.Context(), other)
	if err == nil { // some clouds report it with the operation
		err = b.finished(op).Err
	}
	require.ErrorIs(b, err, provider.ErrAlreadyExists)
	assert.False(b, provider.MayHaveTakenEffect(err))
	got := b.get(req.Ref)
	assert.Equal(b, req.Want.UID, got.UID, "the first one keeps it")
}

func notThere(b *check) {
	ref := b.request(1).Ref
	_, getErr := b.Cloud.Get(b.Context(), ref)
	_, deleteErr := b.Cloud.Delete(b.Context(), ref, uuid.NewString())
	_, opErr := b.Cloud.Operation(b.Context(), ref.Zone, "operation-0")
	for _, err := range []error{getErr, deleteErr, opErr} {
		require.ErrorIs(b, err, provider.ErrNotFound)
		var classified *provider.Error
		assert.ErrorAs(b, err, &classified)
	}
}

func unbuildable(b *check) {
	req := b.request(1)
	req.Want.Placement = v1alpha1.Placement{}
	_, err := b.Cloud.Insert(b.Context(), req)
	require.ErrorIs(b, err, provider.ErrPermanent)
	assert.False(b, provider.MayHaveTakenEffect(err))
	assert.Empty(b, b.list().Instances)
}

func providerIDs(b *check) {
	ref := b.request(1).Ref
	id := b.Cloud.ProviderID(ref)
	got, err := b.Cloud.ParseProviderID(id)
	require.NoError(b, err)
	assert.Equal(b, ref, got)
	for _, bad := range []string{"", "x", id + "/x"} {
		_, err := b.Cloud.ParseProviderID(bad)
		assert.Error(b, err, bad)
	}
}

// A call with an ended context has a lost response: it returns nothing about the
// instance.
func endedContext(b *check) {
	ctx, cancel := context.WithCancel(b.Context())
	cancel()
	req := b.request(1)
	_, insertErr := b.Cloud.Insert(ctx, req)
	_, getErr := b.Cloud.Get(ctx, req.Ref)
	_, deleteErr := b.Cloud.Delete(ctx, req.Ref, uuid.NewString())
	_, opErr := b.Cloud.Operation(ctx, req.Zone, "operation-0")
	_, listErr := b.Cloud.List(ctx)
	for op, err := range map[string]error{"insert": insertErr, "get": getErr, "delete": deleteErr, "operation": opErr, "list": listErr} {
		require.ErrorIs(b, err, context.Canceled, op)
		assert.Equal(b, provider.ErrTransient, provider.Class(err), op)
	}
	assert.True(b, provider.MayHaveTakenEffect(insertErr))
	var classified *provider.Error
	assert.ErrorAs(b, deleteErr, &classified)
}

func identities(b *check) {
	req := b.request(1)
	first := b.made(req)
	b.gone(req.Ref)
	req.RequestID = uuid.NewString()
	second := b.made(req)
	assert.Equal(b, first.Name, second.Name, "the name is free again")
	assert.NotEqual(b, first.ID, second.ID)
}

func account(b *check) {
	assert.NotEmpty(b, b.Cloud.Account())
	assert.GreaterOrEqual(b, b.Cloud.MaxInstances(), 0)
}
