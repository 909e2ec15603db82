package main

import (
	"context"
	"errors"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/utils/ptr"

	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/api/adapter"
	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/stack/controlplane/controlplanetest"
)

const fleet = 40

// two starts two adapters of one installation, the first of which acts and is in
// the middle of making a fleet, at a few inserts a second.
func two(t *testing.T) (w *world, first, second *child) {
	t.Helper()
	cp := kubeconfig(t)
	w = newWorld(t)
	args := []string{"--kubeconfig", cp.Kubeconfig(), "--system-namespace", "default", "--installation", strings.ToLower(t.Name())}
	first = w.start("first", args...)
	eventually(t, "the first acts", first.acts)
	second = w.start("second", args...)
	eventually(t, "the second serves", func() bool {
		_, err := second.List(t.Context())
		return errors.Is(err, adapter.ErrNotReady)
	})
	eventually(t, "the first is at work", func() bool {
		first.putAll(t.Context(), fleet)
		return len(w.gce.VMs()) > 5
	})
	require.Less(t, len(w.gce.VMs()), fleet, "there is work left")
	require.Zero(t, w.by("second"))
	require.Zero(t, second.putAll(t.Context(), fleet), "the second answers not ready")
	return w, first, second
}

// leaseHolder is who may act according to the test's Lease, nobody when it is
// given back.
func leaseHolder(t *testing.T) string {
	t.Helper()
	l := controlplanetest.Lease(t, server.Get(t).RESTConfig(), "default", "cloud-"+strings.ToLower(t.Name()))
	require.NotNil(t, l)
	return ptr.Deref(l.Spec.HolderIdentity, "")
}

func TestSecondAdapterTakesOverAtOnceFromOneThatIsTold(t *testing.T) {
	w, first, second := two(t)
	holder := leaseHolder(t)
	require.NotEmpty(t, holder)
	first.signal(syscall.SIGTERM)
	require.NoError(t, first.cmd.Wait(), "a clean end")
	assert.NotEqual(t, holder, leaseHolder(t), "the lease was released: nobody waits until it runs out")
	eventually(t, "the second acts", second.acts)
	sent := w.by("first") // by now what it gave up at its end has arrived, too
	eventually(t, "all run", func() bool { return second.putAll(t.Context(), fleet) == fleet })
	assert.Equal(t, sent, w.by("first"))
	assert.Len(t, w.gce.VMs(), fleet)
}

func TestSecondAdapterTakesOverFromAKilledOne(t *testing.T) {
	w, first, second := two(t)
	first.signal(syscall.SIGKILL)
	eventually(t, "the second acts", second.acts)
	eventually(t, "all run", func() bool { return second.putAll(t.Context(), fleet) == fleet })
	assert.Len(t, w.gce.VMs(), fleet)
}

// A process that is frozen past its lease, with inserts waiting in it, must not
// send them when it wakes up.
func TestFrozenAdapterDoesNotActPastItsLease(t *testing.T) {
	w, first, second := two(t)
	first.signal(syscall.SIGSTOP)
	eventually(t, "the second acts", second.acts)
	sent := w.by("first") // by now what was under way when it was stopped has arrived
	eventually(t, "the second is at work", func() bool {
		second.putAll(t.Context(), fleet)
		return w.by("second") > 3
	})
	first.signal(syscall.SIGCONT)
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
	defer cancel()
	for ctx.Err() == nil { // while both run
		first.putAll(ctx, 1)
		second.putAll(ctx, fleet)
	}
	eventually(t, "all run", func() bool { return second.putAll(t.Context(), fleet) == fleet })
	assert.Equal(t, sent, w.by("first"), "nothing was sent after it woke up")
	assert.False(t, first.acts())
	assert.True(t, second.acts(), "its return disturbs nobody")
	assert.Len(t, w.gce.VMs(), fleet)
}
