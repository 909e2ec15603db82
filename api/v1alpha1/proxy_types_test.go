package v1alpha1

import (
	"encoding/json"
	"os"
	"reflect"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

// fixtures are objects with every field of ours set.
func fixtures() map[string]func() runtime.Object {
	return map[string]func() runtime.Object{
		"testdata/proxy.json":      func() runtime.Object { return &Proxy{} },
		"testdata/proxyprobe.json": func() runtime.Object { return &ProxyProbe{} },
	}
}

func TestJSONRoundTrip(t *testing.T) {
	for path, empty := range fixtures() {
		t.Run(path, func(t *testing.T) {
			content, err := os.ReadFile(path)
			require.NoError(t, err)
			object := empty()
			require.NoError(t, json.Unmarshal(content, object))
			for _, part := range []string{"Spec", "Status"} {
				assertAllSet(t, part, reflect.ValueOf(object).Elem().FieldByName(part))
			}

			encoded, err := json.Marshal(object)
			require.NoError(t, err)
			assert.JSONEq(t, string(content), string(encoded))

			var generic map[string]any
			require.NoError(t, json.Unmarshal(content, &generic))
			converted := empty()
			require.NoError(t, FromUnstructured(generic, converted))
			assert.Equal(t, object, converted)
			assert.Equal(t, object, object.DeepCopyObject())
		})
	}
}

// assertAllSet fails for a field that the fixture lacks, such as a new one. Both
// alternatives of a choice must be set.
func assertAllSet(t *testing.T, path string, v reflect.Value) {
	t.Helper()
	if v.Kind() == reflect.Pointer {
		if v.IsNil() {
			t.Errorf("%s is not in the fixture", path)
			return
		}
		v = v.Elem()
	}
	if v.IsZero() {
		t.Errorf("%s is not in the fixture", path)
	}
	if v.Kind() != reflect.Struct || v.Type().PkgPath() != reflect.TypeFor[Proxy]().PkgPath() {
		return
	}
	for i := range v.NumField() {
		assertAllSet(t, path+"."+v.Type().Field(i).Name, v.Field(i))
	}
}

// Unset fields must not be encoded: the API server rejects an interval of "0s",
// and a null differs from the stored object at every reconcile.
func TestWhatIsNotSetIsNotWritten(t *testing.T) {
	for name, tc := range map[string]struct {
		object any
		want   string
	}{
		"spec":         {ProxySpec{Mode: ModeManaged}, `{"mode":"Managed"}`},
		"health check": {HealthCheck{}, `{}`},
		"placement":    {Placement{}, `{}`},
		"status":       {ProxyStatus{}, `{}`},
		"probe":        {ProxyProbeSpec{InstanceID: "i", Host: "h", Port: 1}, `{"instanceID":"i","host":"h","port":1}`},
		"verdict":      {ProxyProbeStatus{}, `{}`},
		"no leases":    {ProxySpec{Mode: ModeManaged, MaxLeases: new(int32)}, `{"mode":"Managed","maxLeases":0}`},
		"latency zero": {ProxyStatus{LatencyMillis: new(int64)}, `{"latencyMillis":0}`},
	} {
		encoded, err := json.Marshal(tc.object)
		require.NoError(t, err)
		assert.JSONEq(t, tc.want, string(encoded), name)
		generic, err := runtime.DefaultUnstructuredConverter.ToUnstructured(pointerTo(tc.object))
		require.NoError(t, err)
		encoded, err = json.Marshal(generic)
		require.NoError(t, err)
		assert.JSONEq(t, tc.want, string(encoded), name)
	}
}

func pointerTo(v any) any {
	p := reflect.New(reflect.TypeOf(v))
	p.Elem().Set(reflect.ValueOf(v))
	return p.Interface()
}

func TestFromUnstructuredOfWhatDoesNotFit(t *testing.T) {
	err := FromUnstructured(map[string]any{"spec": map[string]any{"port": "many"}}, &Proxy{})
	assert.ErrorContains(t, err, "*v1alpha1.Proxy")
}

func TestAddToScheme(t *testing.T) {
	s := runtime.NewScheme()
	require.NoError(t, AddToScheme(s))
	for _, kind := range []string{"Proxy", "ProxyList", "ProxyProbe", "ProxyProbeList"} {
		assert.True(t, s.Recognizes(GroupVersion().WithKind(kind)), kind)
	}
	assert.Equal(t, "crawl.example.com/v1alpha1", GroupVersion().String())
	assert.Equal(t, "proxies", ProxyResource().Resource)
	assert.Equal(t, "proxyprobes", ProxyProbeResource().Resource)
}

func TestListsDeepCopy(t *testing.T) {
	proxies := &ProxyList{Items: []Proxy{{Spec: ProxySpec{Attributes: map[string]AttributeValue{"geo": "de"}}}}}
	proxies.DeepCopy().Items[0].Spec.Attributes["geo"] = "fr"
	assert.EqualValues(t, "de", proxies.Items[0].Spec.Attributes["geo"])
	probes := &ProxyProbeList{Items: []ProxyProbe{{ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"a": "b"}}}}}
	probes.DeepCopy().Items[0].Labels["a"] = "c"
	assert.Equal(t, "b", probes.Items[0].Labels["a"])
}

// The schema's defaults and these constants must be the same: see
// manifests/crd/testdata/defaults.yaml for the schema's.
func TestDefaultsAreTheSchemas(t *testing.T) {
	encoded, err := json.Marshal((*HealthCheck)(nil).OrDefault())
	require.NoError(t, err)
	assert.JSONEq(t, `{"probeURL":"https://www.gstatic.com/generate_204","interval":"30s","timeout":"5s","failureThreshold":3,"successThreshold":1,"expectedStatusCodes":[200,204]}`, string(encoded))
}
