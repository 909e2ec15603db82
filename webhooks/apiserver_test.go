package webhooks

import (
	"encoding/json"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"

	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/api/v1alpha1"
	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/webhooks/proxytest"
)

// serverAdds is what a real API server adds to a child of that kind: defaults
// and admission plugins. It is recorded by
// go test ./webhooks -run APIServerKeeps -update.
func serverAdds(t testing.TB, kind string) object {
	t.Helper()
	b, err := os.ReadFile("testdata/apiserver/" + strings.ToLower(kind) + ".added.json")
	require.NoError(t, err)
	var out object
	require.NoError(t, json.Unmarshal(b, &out))
	return out
}

// A real API server stores our children as we send them: nothing that we set is
// rewritten, so that neither apply convention finds a difference, and what it
// adds is what the simulated one adds.
func TestContractAPIServerKeepsOurChildren(t *testing.T) {
	if testing.Short() {
		t.Skip("starts an API server")
	}
	for name, child := range childrenOfAllShapes(t) {
		t.Run(name+"/dynamic-apply", func(t *testing.T) {
			desired := labelled(t, child, "proxy-uid")
			setNested(t, desired, name+"-dynamic", "metadata", "name")
			keptByCreate(t, desired, ownedBy("fra-1", "proxy-uid"))
		})
		t.Run(name+"/server-side-apply", func(t *testing.T) {
			desired := labelled(t, child, "proxy-uid")
			setNested(t, desired, name+"-applied", "metadata", "name")
			keptByApply(t, owned(t, desired, ownedBy("fra-1", "proxy-uid")))
		})
	}
}

func keptByCreate(t *testing.T, desired, owner object) {
	t.Helper()
	sent := dynamicApply{}.create(t, desired, owner)
	created, err := api.client(t, text(sent, "kind")).Create(t.Context(),
		&unstructured.Unstructured{Object: sent}, metav1.CreateOptions{FieldValidation: metav1.FieldValidationStrict})
	require.NoError(t, err)
	checkAdded(t, sent, created.Object)
	require.Equal(t, created.Object, dynamicApply{}.update(t, created.Object, desired, owner), "nothing is to be done")
}

func keptByApply(t *testing.T, sent object) {
	t.Helper()
	client, options := api.client(t, text(sent, "kind")), metav1.ApplyOptions{FieldManager: "metacontroller", Force: true}
	var versions []string
	for range 2 {
		applied, err := client.Apply(t.Context(), text(sent, "metadata", "name"), &unstructured.Unstructured{Object: runtime.DeepCopyJSON(sent)}, options)
		require.NoError(t, err)
		checkAdded(t, sent, applied.Object)
		versions = append(versions, applied.GetResourceVersion())
	}
	require.Equal(t, versions[0], versions[1], "nothing is to be done")
}

// childrenOfAllShapes are our children in every form that their content takes.
func childrenOfAllShapes(t *testing.T) map[string]object {
	t.Helper()
	low, odd := proxytest.Managed(), proxytest.Template()
	low.Spec.Port = 80
	odd.CPU, odd.Memory = resource.MustParse("1000m"), resource.MustParse("1024Mi")
	o := observationOf(proxytest.Managed())
	probe, err := probeChild(o.Proxy, probeSpec(t, o))
	require.NoError(t, err)
	o.Proxy.Spec.CredentialsRef = &v1alpha1.CredentialsRef{Name: "login"}
	o.Proxy.Spec.HealthCheck.Interval, o.Proxy.Spec.HealthCheck.Timeout = metav1.Duration{Duration: 90 * time.Second}, metav1.Duration{Duration: 1500 * time.Millisecond}
	full, err := probeChild(o.Proxy, probeSpec(t, o))
	require.NoError(t, err)
	return map[string]object{
		"pod":                proxytest.Template().Pod(proxytest.Managed(), "v1-hash").Object,
		"pod-low-port":       proxytest.Template().Pod(low, "v1-hash").Object,
		"pod-odd-quantities": odd.Pod(proxytest.Managed(), "v1-hash").Object,
		"probe":              probe.Object,
		"probe-full":         full.Object,
	}
}

// checkAdded compares what the server added with the recording, but for names
// and times.
func checkAdded(t *testing.T, sent, stored object) {
	t.Helper()
	kind := text(sent, "kind")
	more, _ := added(t, kind, normal(t, sent), normal(t, stored)).(object)
	unstructured.RemoveNestedField(more, "metadata", "managedFields")
	for _, field := range []string{"uid", "resourceVersion", "creationTimestamp"} {
		require.NotEmpty(t, text(more, "metadata", field))
		setNested(t, more, "set by the server", "metadata", field)
	}
	golden(t, "apiserver/"+strings.ToLower(kind)+".added.json", indented(t, more))
}

// normal has numbers as JSON decodes them.
func normal(t *testing.T, o object) object {
	t.Helper()
	return decoded(t, o).(object)
}

// added is what the API server put into stored that was not in sent, nil when
// that is nothing. It fails when something that was sent is not as it was.
func added(t testing.TB, path string, sent, stored any) any {
	t.Helper()
	switch sent := sent.(type) {
	case object:
		require.IsType(t, object{}, stored, path)
		return addedToObject(t, path, sent, stored.(object))
	case list:
		require.IsType(t, list{}, stored, path)
		require.Len(t, stored, len(sent), path)
		out, any := make(list, len(sent)), false
		for i := range sent {
			out[i] = added(t, path+"[]", sent[i], stored.(list)[i])
			any = any || out[i] != nil
		}
		if any {
			return out
		}
		return nil
	}
	require.Equal(t, sent, stored, path)
	return nil
}

func addedToObject(t testing.TB, path string, sent, stored object) any {
	t.Helper()
	for name := range sent {
		require.Contains(t, stored, name, path)
	}
	out := object{}
	for _, name := range slices.Sorted(maps.Keys(stored)) {
		value, wasSent := sent[name]
		if !wasSent {
			out[name] = stored[name]
		} else if more := added(t, path+"."+name, value, stored[name]); more != nil {
			out[name] = more
		}
	}
	if len(out) == 0 {
		return nil
	}
	return out
}

// overlay is the reverse of added: sent with what the API server adds.
func overlay(sent, more any) any {
	switch more := more.(type) {
	case nil:
		return sent
	case object:
		out, _ := sent.(object)
		if out == nil {
			return runtime.DeepCopyJSONValue(more)
		}
		for name, value := range more {
			out[name] = overlay(out[name], value)
		}
		return out
	case list:
		out, _ := sent.(list)
		if out == nil {
			return runtime.DeepCopyJSONValue(more)
		}
		for i := range min(len(out), len(more)) {
			out[i] = overlay(out[i], more[i])
		}
		return out
	}
	if sent != nil {
		return sent
	}
	return more
}
