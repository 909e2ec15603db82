package gcp

import (
	"context"
	"net/http"
	"net/http/httptest"
	"sync"
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

// A cancelled list goes on in the background until the HTTP client's timeout. Close
// must not remove its client.
func TestCloseDuringACancelledList(t *testing.T) {
	r := newRig(t, Config{}, gcestandin.Options{})
	r.fill(t, 501, zoneB, "inst") // two pages
	arrived, held := make(chan struct{}, 10), make(chan struct{})
	slow := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		arrived <- struct{}{}
		<-held
		r.gce.Handler().ServeHTTP(w, req)
	}))
	defer slow.Close()
	release := sync.OnceFunc(func() { close(held) })
	defer release()
	c, err := New(context.Background(), r.cfg, "inst", Options{Endpoint: slow.URL, Timeout: time.Minute})
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	go func() { <-arrived; cancel() }()
	_, err = c.List(ctx)
	require.ErrorIs(t, err, context.Canceled)
	require.NoError(t, c.Close())
	release()
	require.Eventually(t, func() bool { return len(r.gce.Calls()) > 0 }, 20*time.Second, 10*time.Millisecond)
}
