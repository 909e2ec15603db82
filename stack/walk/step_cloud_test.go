package walk

import (
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/api/v1alpha1"
)

func TestStepsAboutVMsNeedACloud(t *testing.T) {
	with, without := (&Stack{CloudProvider: "cloud"}).steps(), (&Stack{}).steps()
	assert.Len(t, with, len(without)+2)
	assert.Equal(t, without[len(without)-1].title, with[len(with)-1].title, "the deletion comes last")
}

// cloudOf is a walker whose cloud shows that list.
func cloudOf(t *testing.T, list string) *walker {
	t.Helper()
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte(list)) }))
	t.Cleanup(srv.Close)
	return &walker{stack: Stack{CloudProvider: "cloud", CloudVMsURL: srv.URL}}
}

func TestMachineOf(t *testing.T) {
	p := &v1alpha1.Proxy{}
	p.UID = "u"
	name := v1alpha1.InstanceName(p.UID)
	p.Status = v1alpha1.ProxyStatus{InstanceID: "7", IP: "127.60.0.1", ProviderID: "zones/z/instances/" + name}
	good := `{"zone":"z","name":"` + name + `","id":"7","ip":"127.60.0.1","status":"RUNNING"}`
	other := `{"zone":"z","name":"` + name + `","id":"8","ip":"127.60.0.2","status":"RUNNING"}`
	for list, want := range map[string]string{
		"[" + good + `,{"zone":"z","name":"another"}]`: "",
		"[]":                           "holds 0 VMs",
		"[" + good + "," + other + "]": "holds 2 VMs",
		"[" + other + "]":              "and the status of",
		"nonsense":                     "decode the response",
	} {
		w := cloudOf(t, list)
		_, err := w.machineOf(t.Context(), p)
		if want == "" {
			require.NoError(t, err)
			continue
		}
		require.ErrorContains(t, err, want)
	}
	assert.ErrorContains(t, cloudOf(t, "["+good+"]").noMachines(t.Context()), name+" (id 7) in zone z is left")
	assert.NoError(t, cloudOf(t, "[]").noMachines(t.Context()))
	assert.NoError(t, (&walker{}).noMachines(t.Context()), "a stack without a cloud")
}

func TestCountVMsReportsTwoAtOnce(t *testing.T) {
	p := &v1alpha1.Proxy{}
	p.UID = "u"
	own := `{"name":"` + v1alpha1.InstanceName(p.UID) + `"}`
	for list, want := range map[string]string{"[" + own + `,{"name":"another"}]`: "", "[" + own + "," + own + "]": "2 VMs at once"} {
		asked := make(chan struct{})
		srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			select {
			case asked <- struct{}{}:
			case <-r.Context().Done():
			}
			_, _ = w.Write([]byte(list))
		}))
		stop := (&walker{stack: Stack{CloudVMsURL: srv.URL}}).countVMs(t.Context(), p)
		<-asked
		<-asked // the first answer is counted
		looks, err := stop()
		srv.Close()
		assert.Positive(t, looks)
		if want == "" {
			assert.NoError(t, err)
			continue
		}
		assert.ErrorContains(t, err, want)
	}
}
