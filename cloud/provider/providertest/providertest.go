// Package providertest has the contract tests of provider.Cloud, which a new cloud
// calls.
package providertest

import (
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/types"

	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/api/adapter"
	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/api/v1alpha1"
	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/cloud/provider"
)

// Installation of a Rig's Cloud.
const Installation = "inst"

// Rig is a Cloud with an empty account: a stand-in, or a project of its own.
type Rig struct {
	Cloud     provider.Cloud     // of installation Installation
	Placement v1alpha1.Placement // of instances, with its Zone
	Pass      func()             // advances the cloud's clock by a second. Nil sleeps a little
}

// Run tests that the Cloud of a new Rig does what provider.Cloud promises.
func Run(t *testing.T, newRig func(*testing.T) Rig) {
	for name, run := range map[string]func(*check){
		"an instance's life":                  life,
		"labels come with the insert":         labels,
		"a repeated insert is one instance":   repeatedInsert,
		"a name is taken until it is free":    takenName,
		"what is not there is not found":      notThere,
		"an insert that cannot be built":      unbuildable,
		"provider ids":                        providerIDs,
		"a context that has ended":            endedContext,
		"an identity outlives its name":       identities,
		"the account and its limit are known": account,
	} {
		t.Run(name, func(t *testing.T) { run(&check{T: t, Rig: newRig(t)}) })
	}
}

// check is one running contract test.
type check struct {
	*testing.T
	Rig
}

// request is an insert for the nth Proxy.
func (b *check) request(n int) provider.InsertRequest {
	uid := uuid.NewSHA1(uuid.Nil, []byte{byte(n)}).String()
	name := v1alpha1.InstanceName(types.UID(uid))
	return provider.InsertRequest{
		Ref: provider.Ref{Zone: b.Placement.Zone, Name: name}, RequestID: uuid.NewString(), Installation: Installation,
		Want: adapter.PutRequest{
			UID: uid, Namespace: "crawl", Proxy: "eu.a", SpecHash: "v1-0a", Port: 3129, Placement: b.Placement, UserData: "#cloud-config\n",
		},
	}
}

// until advances the clock until cond holds.
func (b *check) until(what string, cond func() bool) {
	b.Helper()
	for range 600 {
		if cond() {
			return
		}
		if b.Pass != nil {
			b.Pass()
		} else {
			time.Sleep(10 * time.Millisecond)
		}
	}
	require.Fail(b, "it does not happen", what)
}

// made inserts and waits until the instance runs.
func (b *check) made(req provider.InsertRequest) provider.Instance {
	b.Helper()
	require.NoError(b, b.finished(b.insert(req)).Err)
	var got provider.Instance
	b.until("it runs", func() bool {
		got = b.get(req.Ref) // there as soon as its insert was accepted
		return got.State == adapter.StateRunning
	})
	return got
}

func (b *check) insert(req provider.InsertRequest) provider.Operation {
	b.Helper()
	op, err := b.Cloud.Insert(b.Context(), req)
	require.NoError(b, err)
	return op
}

func (b *check) get(ref provider.Ref) provider.Instance {
	b.Helper()
	got, err := b.Cloud.Get(b.Context(), ref)
	require.NoError(b, err)
	return got
}

// finished polls an operation until it is done.
func (b *check) finished(op provider.Operation) provider.Operation {
	b.Helper()
	b.until("the operation ends", func() bool {
		if op.Done {
			return true
		}
		next, err := b.Cloud.Operation(b.Context(), op.Zone, op.Name)
		require.NoError(b, err)
		op = next
		return op.Done
	})
	return op
}

// gone deletes and waits until reads find nothing.
func (b *check) gone(ref provider.Ref) {
	b.Helper()
	op, err := b.Cloud.Delete(b.Context(), ref, uuid.NewString())
	require.NoError(b, err)
	require.NoError(b, b.finished(op).Err)
	b.until("it is gone", func() bool {
		_, err := b.Cloud.Get(b.Context(), ref)
		if err != nil {
			require.ErrorIs(b, err, provider.ErrNotFound)
		}
		return err != nil
	})
}
