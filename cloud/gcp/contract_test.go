package gcp

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/cloud/gcestandin"
	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/cloud/provider/providertest"
)

func TestContract(t *testing.T) {
	providertest.Run(t, func(t *testing.T) providertest.Rig {
		r := newRig(t, Config{}, gcestandin.Options{Timing: gcestandin.Timing{
			Provisioning: 2 * time.Second, Staging: time.Second, Address: time.Second, Insert: 2 * time.Second, Delete: 5 * time.Second,
		}})
		return providertest.Rig{Cloud: r.Cloud, Placement: testInsert().Want.Placement, Pass: func() { r.pass(time.Second) }}
	})
}

// A list that nobody waits for any more goes on alone until the HTTP client's
// time-out. It must not find its client gone.
func TestCloseWhileAListGoesOnAlone(t *testing.T) {
	r := newRig(t, Config{}, gcestandin.Options{})
	r.fill(t, 501, zoneB, "inst") // two pages
	r.gce.AddFault(gcestandin.Fault{Op: "list", Count: 1, DelayMillis: 200})
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	_, err := r.List(ctx)
	require.ErrorIs(t, err, context.DeadlineExceeded)
	require.NoError(t, r.Close())
	require.Eventually(t, func() bool { return len(r.gce.Calls()) > 0 }, 20*time.Second, 10*time.Millisecond)
}
