package hooktest

import (
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/api/v1alpha1"
	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/internal/process"
	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/internal/program/programtest"
	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/stack/controlplane/controlplanetest"
)

// webhooksProgram is the real process, always at one address, as behind a Service.
type webhooksProgram struct {
	t       *testing.T
	dir     string
	host    string
	running *process.Process
}

func newWebhooksProgram(t *testing.T) *webhooksProgram {
	t.Helper()
	w := &webhooksProgram{t: t, dir: t.TempDir()}
	require.NoError(t, programtest.Build(w.dir, "../../cmd/webhooks"))
	require.NoError(t, os.WriteFile(filepath.Join(w.dir, "providers.yaml"), []byte(providers), 0o600))
	// No other process has this address of 127/8, so its port stays free during the restart.
	w.host = controlplanetest.Addr()
	t.Cleanup(func() {
		if w.running != nil {
			w.stop()
		}
	})
	return w
}

func (w *webhooksProgram) url() string { return "http://" + w.host + ":8443" }

func (w *webhooksProgram) start() {
	w.t.Helper()
	var err error
	w.running, err = process.Start(process.Command{
		Name: "webhooks", Path: filepath.Join(w.dir, "webhooks"), LogFile: filepath.Join(w.dir, "webhooks.log"),
		Args: []string{
			"--insecure", "--listen", w.host + ":8443", "--ops-addr", w.host + ":8081", "--providers-config", filepath.Join(w.dir, "providers.yaml"),
			"--provisioning-poll", "1s", "--deletion-poll", "1s", "--budget-poll", "1s",
		},
	})
	require.NoError(w.t, err)
}

// stop sends SIGTERM and waits for the exit within the grace period of the manifests.
func (w *webhooksProgram) stop() {
	w.t.Helper()
	require.NoError(w.t, w.running.Stop(25*time.Second))
	w.running = nil
}

// refused waits until connections are refused.
func (w *webhooksProgram) refused() {
	w.t.Helper()
	client := http.Client{Timeout: time.Second, Transport: &http.Transport{DisableKeepAlives: true}}
	require.Eventually(w.t, func() bool {
		resp, err := client.Get(w.url())
		if err == nil {
			resp.Body.Close()
		}
		return err != nil
	}, 10*time.Second, 10*time.Millisecond)
}

// lives are the UIDs that objects of each name have had, and those with a deletion timestamp.
type lives struct {
	mu      sync.Mutex
	uids    map[string]map[types.UID]bool
	deleted map[string]bool
}

func (l *lives) see(obj *unstructured.Unstructured) {
	l.mu.Lock()
	defer l.mu.Unlock()
	name := obj.GetKind() + " " + obj.GetName()
	if l.uids[name] == nil {
		l.uids[name] = map[types.UID]bool{}
	}
	l.uids[name][obj.GetUID()] = true
	if obj.GetDeletionTimestamp() != nil {
		l.deleted[name] = true
	}
}

// ended are the objects that were deleted or replaced.
func (l *lives) ended() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	ended := maps.Clone(l.deleted)
	for name, uids := range l.uids {
		if len(uids) > 1 {
			ended[name] = true
		}
	}
	return slices.Sorted(maps.Keys(ended))
}

// The process of the hooks restarts while it creates a fleet. Failed syncs are retried: the fleet
// gets Ready, and so does everything created, edited and deleted meanwhile. Nothing else changes.
func TestHooksRestartDuringFleetCreation(t *testing.T) {
	const size = 30
	for _, d := range Drivers(t) {
		t.Run(d.String(), func(t *testing.T) {
			l := New(t, shared.Get(t))
			seen := &lives{uids: map[string]map[types.UID]bool{}, deleted: map[string]bool{}}
			for _, gvr := range Resources() {
				l.watch(gvr, seen.see)
			}
			w := newWebhooksProgram(t)
			w.start()
			l.DriveAt(d, w.url())
			l.PlayKubelet()
			l.CreateProxies(fleet(size)...)
			l.Eventually("some are made", func() bool { return l.inPhase(v1alpha1.PhaseProbing) > 2 })
			w.stop()
			w.refused()

			mayEnd := []string{"ProxyProbe px-0", "Pod " + v1alpha1.InstanceName(l.Proxy("px-0").UID), "Proxy px-1", "ProxyProbe px-1", "Pod " + v1alpha1.InstanceName(l.Proxy("px-1").UID)}
			l.PlayProber() // verdicts arrive while no hook responds
			l.Patch(v1alpha1.ProxyResource(), "px-0", `{"spec":{"port":3129}}`)
			require.NoError(t, l.In(v1alpha1.ProxyResource()).Delete(t.Context(), "px-1", metav1.DeleteOptions{}))
			l.CreateProxies(Managed("px-new", provider))
			time.Sleep(2 * time.Second) // as long as a rollout of the Pod: failed calls accumulate
			assert.Subset(t, []string{"Proxy px-1"}, seen.ended(), "nothing is done without the hooks' word")
			assert.Zero(t, l.inPhase(v1alpha1.PhaseReady))
			w.start()

			began := time.Now()
			l.Eventually("all Ready", func() bool { return l.inPhase(v1alpha1.PhaseReady) == size && l.Proxy("px-1") == nil })
			assert.EqualValues(t, 3129, l.Proxy("px-0").Status.Port)
			assert.Subset(t, mayEnd, seen.ended())
			t.Logf("all Ready %s after the hooks were started again", time.Since(began).Round(time.Millisecond))
		})
	}
}
