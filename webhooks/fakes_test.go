package webhooks

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	kschema "k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/managedfields"
	"k8s.io/apimachinery/pkg/util/managedfields/managedfieldstest"
	"k8s.io/client-go/applyconfigurations"
	"k8s.io/client-go/kubernetes/scheme"
	kjson "sigs.k8s.io/json"

	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/api/adapter"
	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/api/v1alpha1"
	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/webhooks/proxy"
	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/webhooks/proxytest"
)

// fakeAdapter is a cloud adapter with at most one VM. A call notes what should
// be and answers what is, the same for the same call; only step changes
// anything.
type fakeAdapter struct {
	mu sync.Mutex
	// vm that exists, nil for none.
	vm *adapter.Instance
	// failure keeps a VM from being made.
	failure *adapter.Failure
	// err is what every call returns, until step heals it unless it is stubborn.
	err      error
	stubborn bool
	// lie takes the place of every answer.
	lie *adapter.Instance

	want  *adapter.PutRequest
	gone  bool
	made  int
	calls []fakeCall
}

// fakeCall is one call of an adapter.
type fakeCall struct {
	Method     string              `json:"method"`
	Provider   string              `json:"provider"`
	Name       string              `json:"name"`
	Put        *adapter.PutRequest `json:"put,omitempty"`
	UID        string              `json:"uid,omitempty"`
	ProviderID string              `json:"providerID,omitempty"`
}

func (f *fakeAdapter) Put(_ context.Context, provider, name string, req adapter.PutRequest) (adapter.Instance, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.calls = append(f.calls, fakeCall{Method: "PUT", Provider: provider, Name: name, Put: &req})
	if err := req.Validate(name); err != nil {
		return adapter.Instance{}, err
	}
	switch {
	case f.err != nil:
		return adapter.Instance{}, f.err
	case f.gone:
		return adapter.Instance{}, adapter.ErrDeleted
	}
	f.want = &req
	return f.answer(), nil
}

func (f *fakeAdapter) Delete(_ context.Context, provider, name, uid, providerID string) (adapter.Instance, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.calls = append(f.calls, fakeCall{Method: "DELETE", Provider: provider, Name: name, UID: uid, ProviderID: providerID})
	if f.err != nil {
		return adapter.Instance{}, f.err
	}
	f.gone = true
	return f.answer(), nil
}

func (f *fakeAdapter) answer() adapter.Instance {
	if f.lie != nil {
		return *f.lie
	}
	if f.vm == nil {
		out := adapter.Instance{State: adapter.StateAbsent, Action: adapter.ActionNone, Failure: f.failure}
		if f.failure == nil && !f.gone {
			out.Action = adapter.ActionInserting
		}
		return out
	}
	out := *f.vm
	if f.gone && out.State == adapter.StateRunning {
		out.State = adapter.StateStopping
	}
	return out
}

// step lets the adapter and the cloud do one thing, and reports whether they
// did.
func (f *fakeAdapter) step() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	switch vm := f.vm; {
	case f.err != nil && !f.stubborn:
		f.err = nil
	case f.err != nil || f.lie != nil:
		return false
	case vm == nil && (f.gone || f.want == nil || f.failure != nil):
		return false
	case vm == nil:
		f.made++
		created := proxytest.Noon()
		f.vm = &adapter.Instance{
			State: adapter.StateProvisioning, Action: adapter.ActionInserting, ProviderID: "zones/" + f.want.Placement.Zone + "/instances/" + f.calls[len(f.calls)-1].Name,
			InstanceID: fmt.Sprint(1000 + f.made), SpecHash: f.want.SpecHash, Port: f.want.Port, CreatedAt: &created,
		}
	case vm.State == adapter.StateStopping:
		f.vm = nil
	case f.gone || vm.State == adapter.StateStopped || f.want != nil && f.want.Replace != "" && f.want.Replace == vm.InstanceID:
		vm.State, vm.Action, vm.IP = adapter.StateStopping, adapter.ActionDeleting, ""
	case vm.State == adapter.StateProvisioning:
		vm.State, vm.Action, vm.IP = adapter.StateRunning, adapter.ActionNone, fmt.Sprintf("203.0.113.%d", 10+f.made)
	case vm.State == adapter.StateRunning && vm.IP == "":
		vm.IP = "203.0.113.9"
	default:
		return false
	}
	return true
}

// holds reports whether the end of the VM cannot be confirmed yet.
func (f *fakeAdapter) holds() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.vm != nil || f.err != nil || f.lie != nil && f.lie.State != adapter.StateAbsent
}

// kills are the calls that would end an instance.
func (f *fakeAdapter) kills() (out []fakeCall) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, c := range f.calls {
		if c.Method == "DELETE" || c.Put.Replace != "" {
			out = append(out, c)
		}
	}
	return out
}

func (f *fakeAdapter) puts() (n int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, c := range f.calls {
		if c.Method == "PUT" {
			n++
		}
	}
	return n
}

// strangers is an adapter whose config has none of the providers.
func strangers() *fakeAdapter {
	return &fakeAdapter{err: adapterErrors()["unknown_provider"], stubborn: true}
}

// adapterErrors are what a call may return, by the metric's name.
func adapterErrors() map[string]error {
	says := func(status int, code, message string) error {
		return &adapter.StatusError{Status: status, Body: adapter.ErrorBody{Error: code, Message: message}}
	}
	return map[string]error{
		"unavailable":      fmt.Errorf("%w: dial unix /run/cloud/s: connect: no such file or directory", adapter.ErrUnavailable),
		"not_ready":        says(503, adapter.CodeNotReady, "its instances are being listed for the first time"),
		"unknown_provider": says(404, adapter.CodeUnknownProvider, `provider "x": unknown provider`),
		"deleted":          says(409, adapter.CodeDeleted, "it has been deleted"),
		"invalid":          says(400, adapter.CodeInvalid, "port 0: want 1 to 65535"),
	}
}

// fixtureAdapter reads the adapter of a fixture, nil when it has none.
func fixtureAdapter(t testing.TB, request string) *fakeAdapter {
	t.Helper()
	b, err := os.ReadFile(strings.Replace(request, ".request.json", ".adapter.json", 1))
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	require.NoError(t, err)
	var in struct {
		Instance *adapter.Instance `json:"instance"`
		Failure  *adapter.Failure  `json:"failure"`
		Error    string            `json:"error"`
	}
	require.NoError(t, json.Unmarshal(b, &in))
	f := &fakeAdapter{vm: in.Instance, failure: in.Failure}
	if in.Error != "" {
		f.err = adapterErrors()[in.Error]
		require.Error(t, f.err)
	}
	return f
}

// hooksWith are hooks at noon that ask that adapter.
func hooksWith(a Adapter) *Hooks {
	o := testOptions()
	o.CloudInitSecrets, o.Adapter = true, a
	return New(o)
}

// store is an API server that holds one Proxy and its children, and the part of
// Metacontroller that carries an answer out: Pods OnDelete, ProxyProbes InPlace.
// There is no kubelet and no prober.
type store struct {
	applier applier
	request object
	now     time.Time
	creates int
	cloud   *fakeAdapter
}

// newStore holds the objects of a request.
func newStore(t testing.TB, c contractCase, a applier) *store {
	t.Helper()
	s := &store{applier: a, now: c.now, cloud: c.cloud}
	require.NoError(t, kjson.UnmarshalCaseSensitivePreserveInts(c.body, &s.request))
	return s
}

func (s *store) parent() object { return s.request["parent"].(object) }

// children of that kind, by key.
func (s *store) children(kind string) object {
	return s.request["children"].(object)[kind].(object)
}

// carryOut does what Metacontroller does with an answer, and returns the writes
// that it took.
func (s *store) carryOut(t testing.TB, answer []byte) (writes []string) {
	t.Helper()
	var a v2Answer
	require.NoError(t, kjson.UnmarshalCaseSensitivePreserveInts(answer, &a))
	wanted := map[string]bool{}
	for _, child := range a.Children {
		wanted[text(child, "kind")+" "+text(child, "metadata", "name")] = true
	}
	for _, kind := range []string{podKind, probeKind} {
		writes = append(writes, s.delete(t, kind, wanted)...)
	}
	for _, child := range a.Children {
		writes = append(writes, s.apply(t, child)...)
	}
	a.Status["observedGeneration"] = at(s.parent(), "metadata", "generation")
	if !reflect.DeepEqual(s.parent()["status"], any(a.Status)) {
		s.parent()["status"] = a.Status
		writes = append(writes, "status")
	}
	if s.cloud != nil && s.cloud.step() {
		writes = append(writes, "the cloud")
	}
	return writes
}

// delete removes what is not wanted. A Pod takes its time, until the next call;
// what was on its way out already is gone then.
func (s *store) delete(t testing.TB, kind string, wanted map[string]bool) (writes []string) {
	t.Helper()
	children := s.children(kind)
	for key, child := range children {
		id := text(child, "kind") + " " + text(child, "metadata", "name")
		switch {
		case at(child, "metadata", "deletionTimestamp") != nil:
			delete(children, key)
			writes = append(writes, "gone "+id) // by its kubelet
		case wanted[id]:
		case kind == podKind:
			setNested(t, child.(object), s.now.Format(time.RFC3339), "metadata", "deletionTimestamp")
			writes = append(writes, "delete "+id)
		default:
			delete(children, key)
			writes = append(writes, "delete "+id)
		}
	}
	return writes
}

func (s *store) apply(t testing.TB, child object) (writes []string) {
	t.Helper()
	kind := map[any]string{"Pod": podKind, "ProxyProbe": probeKind}[child["kind"]]
	require.NotEmpty(t, kind)
	id, key := text(child, "kind")+" "+text(child, "metadata", "name"), text(child, "metadata", "namespace")+"/"+text(child, "metadata", "name")
	uid := text(s.parent(), "metadata", "uid")
	owner, desired := ownedBy(text(s.parent(), "metadata", "name"), uid), labelled(t, child, uid)

	observed, exists := s.children(kind)[key].(object)
	if !exists {
		require.Contains(t, child, "spec", "the API server refuses a child that is only named")
		s.children(kind)[key] = s.stored(t, s.applier.create(t, desired, owner))
		return []string{"create " + id}
	}
	updated := s.applier.update(t, observed, desired, owner)
	revert(t, updated, observed)
	if reflect.DeepEqual(updated, observed) {
		return nil
	}
	if kind == podKind { // OnDelete
		require.NotContains(t, text(observed, "metadata", "uid"), "made-", "a Pod that was made from our own answer differs from it")
		return nil
	}
	s.children(kind)[key] = updated
	return []string{"update " + id}
}

// stored is what the API server makes of a new object: a Pod goes through its
// type, which writes quantities anew and drops what is empty, and takes the
// recorded defaults.
func (s *store) stored(t testing.TB, sent object) object {
	t.Helper()
	s.creates++
	content := mustJSON(t, overlay(runtime.DeepCopyJSON(sent), serverAdds(t, text(sent, "kind"))))
	if text(sent, "kind") == "Pod" {
		var pod corev1.Pod
		require.NoError(t, json.Unmarshal(bytes.Replace(content, []byte(`"creationTimestamp":"set by the server",`), nil, 1), &pod))
		content = mustJSON(t, pod)
	}
	var out object
	require.NoError(t, kjson.UnmarshalCaseSensitivePreserveInts(content, &out))
	setNested(t, out, fmt.Sprintf("made-%d", s.creates), "metadata", "uid")
	setNested(t, out, s.now.Format(time.RFC3339), "metadata", "creationTimestamp")
	return out
}

// revert gives an update the fields back that are not the hook's: Metacontroller
// does it under dynamic apply, the API server under server-side apply.
func revert(t testing.TB, updated, observed object) {
	t.Helper()
	if s, found := observed["status"]; found {
		updated["status"] = s
	}
	for _, field := range []string{"uid", "resourceVersion", "generation", "creationTimestamp", "deletionTimestamp", "managedFields"} {
		unstructured.RemoveNestedField(updated, "metadata", field)
		if value := at(observed, "metadata", field); value != nil {
			setNested(t, updated, value, "metadata", field)
		}
	}
}

// body is the next request.
func (s *store) body(t testing.TB) []byte {
	t.Helper()
	return mustJSON(t, s.request)
}

// applier is one of Metacontroller's two ways to make the API server hold a
// child. The objects are as the API server has them; none is changed.
type applier interface {
	// create returns what is sent to make desired for its owner.
	create(t testing.TB, desired, owner object) object
	// update returns observed with desired applied to it, or an equal object
	// when nothing is to be done.
	update(t testing.TB, observed, desired, owner object) object
}

const lastAppliedAnnotation = "metacontroller.k8s.io/last-applied-configuration"

// dynamicApply is the default: a three-way merge by convention, with what was
// applied last in an annotation.
type dynamicApply struct{}

func (dynamicApply) create(t testing.TB, desired, owner object) object {
	t.Helper()
	out := owned(t, desired, owner)
	setNested(t, out, string(mustJSON(t, desired)), "metadata", "annotations", lastAppliedAnnotation)
	return out
}

func (dynamicApply) update(t testing.TB, observed, desired, _ object) object {
	t.Helper()
	var last object
	if s := text(observed, "metadata", "annotations", lastAppliedAnnotation); s != "" {
		require.NoError(t, json.Unmarshal([]byte(s), &last))
	}
	out := mergeObjects(runtime.DeepCopyJSON(observed), last, runtime.DeepCopyJSON(desired))
	setNested(t, out, string(mustJSON(t, desired)), "metadata", "annotations", lastAppliedAnnotation)
	return out
}

// mergeObjects takes away what was applied and is no longer desired, and sets
// what is desired; the rest belongs to others.
func mergeObjects(observed, last, desired object) object {
	if observed == nil {
		observed = object{}
	}
	for name := range last {
		if _, found := desired[name]; !found {
			delete(observed, name)
		}
	}
	for name, value := range desired {
		observed[name] = mergeValues(observed[name], last[name], value)
	}
	return observed
}

func mergeValues(observed, last, desired any) any {
	switch desired := desired.(type) {
	case object:
		if observed, ok := observed.(object); ok {
			last, _ := last.(object)
			return mergeObjects(observed, last, desired)
		}
	case list:
		observed, _ := observed.(list)
		last, _ := last.(list)
		if key := keyOf(slices.Concat(observed, last, desired)); key != "" {
			return mergeLists(key, observed, last, desired)
		}
	}
	return desired
}

// keyOf is the field that makes a list a map: the first of these that all items
// have. A list without one is replaced as a whole.
func keyOf(items list) string {
	for _, key := range []string{"containerPort", "port", "mountPath", "name", "uid", "ip", "path"} {
		if len(items) > 0 && !slices.ContainsFunc(items, func(item any) bool {
			o, _ := item.(object)
			_, found := o[key]
			return !found
		}) {
			return key
		}
	}
	return ""
}

// mergeLists keeps the observed order; what is new comes last.
func mergeLists(key string, observed, last, desired list) list {
	byKey := func(l list) object {
		out := object{}
		for _, item := range l {
			out[string(must(json.Marshal(item.(object)[key])))] = item
		}
		return out
	}
	merged := mergeObjects(byKey(observed), byKey(last), byKey(desired))
	out := list{}
	for _, item := range slices.Concat(observed, desired) {
		id := string(must(json.Marshal(item.(object)[key])))
		if m, found := merged[id]; found {
			out = append(out, m)
			delete(merged, id)
		}
	}
	return out
}

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

// serverSideApply lets the API server merge by who owns which field. The merge
// is the API server's own code.
type serverSideApply struct {
	managers map[string]managedfieldstest.TestFieldManager
	types    map[string]managedfields.TypeConverter
}

// childTypes knows the schema of Pods. Lists in our CRDs are atomic, which is
// what the merge deduces without a schema.
func childTypes() map[string]managedfields.TypeConverter {
	return map[string]managedfields.TypeConverter{
		"Pod":        applyconfigurations.NewTypeConverter(scheme.Scheme),
		"ProxyProbe": managedfields.NewDeducedTypeConverter(),
	}
}

func newServerSideApply(types map[string]managedfields.TypeConverter) *serverSideApply {
	return &serverSideApply{managers: map[string]managedfieldstest.TestFieldManager{}, types: types}
}

func (s *serverSideApply) manager(o object) (m managedfieldstest.TestFieldManager, known bool) {
	u := unstructured.Unstructured{Object: o}
	id := u.GetKind() + " " + u.GetName()
	m, known = s.managers[id]
	if !known {
		m = managedfieldstest.NewTestFieldManager(s.types[u.GetKind()], kschema.FromAPIVersionAndKind(u.GetAPIVersion(), u.GetKind()))
		s.managers[id] = m
	}
	return m, known
}

func (s *serverSideApply) create(t testing.TB, desired, owner object) object {
	t.Helper()
	m, _ := s.manager(desired)
	m.Reset()
	return s.apply(t, m, owned(t, desired, owner))
}

// update also removes the annotation of an earlier dynamic apply, as
// Metacontroller does.
func (s *serverSideApply) update(t testing.TB, observed, desired, owner object) object {
	t.Helper()
	m, known := s.manager(desired)
	live := runtime.DeepCopyJSON(observed)
	unstructured.RemoveNestedField(live, "metadata", "annotations", lastAppliedAnnotation)
	unstructured.RemoveNestedField(live, "metadata", "managedFields")
	manager := "before"
	if known {
		manager = "the API server" // of the defaults
	}
	require.NoError(t, m.Update(&unstructured.Unstructured{Object: live}, manager))
	out := s.apply(t, m, owned(t, desired, owner))
	if fields := at(observed, "metadata", "managedFields"); fields != nil {
		setNested(t, out, fields, "metadata", "managedFields")
	}
	return out
}

func (s *serverSideApply) apply(t testing.TB, m managedfieldstest.TestFieldManager, desired object) object {
	t.Helper()
	require.NoError(t, m.Apply(&unstructured.Unstructured{Object: runtime.DeepCopyJSON(desired)}, "metacontroller", true))
	out := m.Live().(*unstructured.Unstructured).DeepCopy().Object
	unstructured.RemoveNestedField(out, "metadata", "managedFields")
	return out
}

func owned(t testing.TB, child, owner object) object {
	t.Helper()
	out := runtime.DeepCopyJSON(child)
	setNested(t, out, list{owner}, "metadata", "ownerReferences")
	return out
}

// ownedBy is the reference to a Proxy that Metacontroller puts on its children.
func ownedBy(name, uid string) object {
	return object{
		"apiVersion": v1alpha1.GroupVersion().String(), "kind": "Proxy", "name": name, "uid": uid,
		"controller": true, "blockOwnerDeletion": true,
	}
}

// labelled is a child with the label that stands for generateSelector.
func labelled(t testing.TB, child object, uid string) object {
	t.Helper()
	out := runtime.DeepCopyJSON(child)
	setNested(t, out, uid, "metadata", "labels", "controller-uid")
	return out
}

func setNested(t testing.TB, o object, value any, path ...string) {
	t.Helper()
	require.NoError(t, unstructured.SetNestedField(o, value, path...))
}

// The answers as hook API v2 has them, written down once more from its
// documentation: a slip in the types that write answers must not excuse itself
// in the tests that read them.
type (
	v2Answer struct {
		Status             map[string]any   `json:"status"`
		Children           []map[string]any `json:"children"`
		ResyncAfterSeconds *float64         `json:"resyncAfterSeconds"`
		Finalized          *bool            `json:"finalized"`
	}
	v2Customize struct {
		RelatedResources []v2Rule `json:"relatedResources"`
	}
	v2Rule struct {
		APIVersion        string                `json:"apiVersion"`
		Resource          string                `json:"resource"`
		LabelSelector     *metav1.LabelSelector `json:"labelSelector,omitempty"`
		NamespaceSelector *metav1.LabelSelector `json:"namespaceSelector,omitempty"`
		Namespace         string                `json:"namespace,omitempty"`
		Names             []string              `json:"names,omitempty"`
	}
)

// readV2 decodes as Metacontroller does for hooks of version v2: unknown and
// repeated fields are errors, and integers stay integers.
func readV2[T any](t testing.TB, answer []byte) T {
	t.Helper()
	var out T
	strict, err := kjson.UnmarshalStrict(answer, &out)
	require.NoError(t, errors.Join(append(strict, err)...), "%s", answer)
	return out
}

// v2Of is a safe sync or finalize answer, decoded.
func v2Of(t testing.TB, answer []byte) v2Answer {
	t.Helper()
	a := readV2[v2Answer](t, answer)
	require.NotEmpty(t, a.Status)
	require.NotNil(t, a.Children)
	require.NotNil(t, a.ResyncAfterSeconds)
	require.NotNil(t, a.Finalized)
	return a
}

func (a v2Answer) phase() string { return text(a.Status, "phase") }

// reason is the reason of the Provisioned condition.
func (a v2Answer) reason() string {
	for _, c := range a.Status["conditions"].([]any) {
		if c := c.(map[string]any); c["type"] == "Provisioned" {
			return text(c, "reason")
		}
	}
	return ""
}

// listed are the children's kinds and names.
func (a v2Answer) listed() []string {
	out := []string{}
	for _, c := range a.Children {
		out = append(out, text(c, "kind")+" "+text(c, "metadata", "name"))
	}
	return out
}

// text is the string at a path below v, "" when there is none.
func text(v any, path ...string) string {
	s, _ := at(v, path...).(string)
	return s
}

// at is the value at a path below v, nil when there is none.
func at(v any, path ...string) any {
	for _, name := range path {
		m, _ := v.(map[string]any)
		v = m[name]
	}
	return v
}

// walk calls visit for v and everything below it.
func walk(path string, v any, visit func(path string, v any)) {
	visit(path, v)
	switch v := v.(type) {
	case map[string]any:
		for name, value := range v {
			walk(path+"."+name, value, visit)
		}
	case []any:
		for _, value := range v {
			walk(path+"[]", value, visit)
		}
	}
}

// decodedJSON is a text as maps and lists.
func decodedJSON(t testing.TB, b []byte) any {
	t.Helper()
	var out any
	require.NoError(t, json.Unmarshal(b, &out))
	return out
}

// generator makes requests that a hook might meet, plausible and not, always
// the same for the same seed.
type generator struct {
	*rand.Rand
	t testing.TB
}

// generated is one request and what is known about it.
type generated struct {
	request
	budget bool         // whether a replacement is allowed
	cloud  *fakeAdapter // of VMs
}

func pick[T any](g generator, choices ...T) T { return choices[g.IntN(len(choices))] }

func (g generator) proxy() *v1alpha1.Proxy {
	if g.IntN(5) == 0 {
		return proxytest.External()
	}
	p := proxytest.Managed()
	p.Spec.Provider = pick(g, "pods", "pods", "pods", "unknown")
	p.Spec.Port = pick[int32](g, 3128, 3128, 80, 0)
	p.Spec.Placement = pick(g, nil, &v1alpha1.Placement{Zone: "a"})
	p.Spec.CredentialsRef = pick(g, nil, &v1alpha1.CredentialsRef{Name: "login"})
	p.Spec.HealthCheck = pick(g, p.Spec.HealthCheck, nil)
	p.Spec.CloudInit = pick(g, nil, nil, &v1alpha1.CloudInit{Inline: "#cloud-config"}, proxytest.SecretRef().Spec.CloudInit)
	p.Annotations = pick(g, nil, map[string]string{v1alpha1.AnnotationAbandon: "true"})
	return p
}

func (g generator) status(p *v1alpha1.Proxy) {
	at := proxytest.Noon().Add(-pick(g, time.Second, time.Minute, 9*time.Minute))
	if g.IntN(4) > 0 {
		reason := pick(g, v1alpha1.ReasonProvisioning, v1alpha1.ReasonCreated, v1alpha1.ReasonReplacing, v1alpha1.ReasonReplacementPending,
			v1alpha1.ReasonInstanceTerminated, v1alpha1.ReasonProvisioningTimeout, v1alpha1.ReasonUnknownProvider, v1alpha1.ReasonCloudInitError, v1alpha1.ReasonExternalEndpoint, v1alpha1.ReasonInstanceFailing)
		proxytest.SetCondition(p, v1alpha1.ConditionProvisioned, pick(g, yes, no), reason, at)
	}
	if g.IntN(4) > 0 {
		proxytest.SetCondition(p, v1alpha1.ConditionHealthy, pick(g, yes, no, metav1.ConditionUnknown), pick(g, "ProbeSucceeded", v1alpha1.ReasonReplacing, proxy.ReasonNoInstance), at)
	}
	p.Status.InstanceID = pick(g, "", proxytest.PodID, "another")
	if p.Spec.Mode == v1alpha1.ModeManaged {
		p.Status.ProviderID = p.Namespace + "/" + v1alpha1.InstanceName(p.UID)
	}
	p.Status.SpecHash = pick(g, "", proxytest.Hash(p), proxytest.OtherHash, "v9-other")
	p.Status.IP, p.Status.Port = pick(g, "", "10.9.9.9"), pick[int32](g, 0, 3128, 8888)
}

func (g generator) pod(p *v1alpha1.Proxy) *corev1.Pod {
	pod := proxytest.Pod(g.t, p, pick(g, corev1.PodPending, corev1.PodRunning, corev1.PodRunning, corev1.PodRunning, corev1.PodFailed, corev1.PodSucceeded, corev1.PodUnknown, ""), pick(g, "", "10.1.2.3", "10.1.2.3"))
	if hash := pick(g, "right", "right", proxytest.OtherHash, "v1-typed", "v9-other", ""); hash != "right" {
		pod.Annotations[v1alpha1.AnnotationSpecHash] = hash
	}
	pod.CreationTimestamp = metav1.NewTime(proxytest.Noon().Add(-pick(g, time.Second, time.Minute, time.Hour)))
	pod.Status.Reason = map[corev1.PodPhase]string{corev1.PodFailed: "Evicted", corev1.PodSucceeded: "not a reason!"}[pod.Status.Phase]
	if g.IntN(5) == 0 {
		now := metav1.NewTime(proxytest.Noon())
		pod.DeletionTimestamp = &now
	}
	if g.IntN(4) == 0 {
		pod.Spec.Containers[0].Ports = nil
	}
	return pod
}

func (g generator) probe(p *v1alpha1.Proxy) *v1alpha1.ProxyProbe {
	id := proxytest.PodID
	if p.Spec.Endpoint != nil {
		id = v1alpha1.ExternalInstanceID(*p.Spec.Endpoint)
	}
	probe := proxytest.Probe(pick(g, id, id, "another"), pick(g, v1alpha1.VerdictHealthy, v1alpha1.VerdictUnhealthy, v1alpha1.VerdictUnknown, ""))
	probe.Status.Reason = pick(g, "ProbeSucceeded", "", "not a reason!")
	if g.IntN(6) == 0 {
		now := metav1.NewTime(proxytest.Noon())
		probe.DeletionTimestamp = &now
	}
	return probe
}

func (g generator) next() generated {
	p := g.proxy()
	out := generated{request: request{proxy: p, finalizing: g.IntN(6) == 0}, budget: g.IntN(2) == 0}
	if g.IntN(2) == 0 {
		out.secrets = append(out.secrets, bootSecret("#!/bin/sh"))
	}
	if g.IntN(5) > 0 && p.Spec.Mode == v1alpha1.ModeManaged {
		out.pods = append(out.pods, g.pod(p))
	}
	if g.IntN(3) > 0 {
		out.probes = append(out.probes, g.probe(p))
	}
	for i := range pick(g, 0, 0, 0, 0, 0, 0, 1, 3) {
		stray := g.pod(p)
		stray.Name, stray.UID = fmt.Sprintf("stray-%d", i), types.UID(fmt.Sprintf("stray-uid-%d", i))
		out.pods = append(out.pods, stray)
	}
	g.status(p)
	return out
}

// vm makes the request about a Proxy whose instance is a VM, and the adapter that
// reports it.
func (g generator) vm() generated {
	p := proxytest.Cloud()
	p.Spec.Port = pick[int32](g, 3128, 3128, 80)
	p.Spec.CloudInit = pick(g, nil, nil, &v1alpha1.CloudInit{Inline: "#cloud-config"}, proxytest.SecretRef().Spec.CloudInit)
	p.Spec.CredentialsRef = pick(g, nil, &v1alpha1.CredentialsRef{Name: "login"})
	p.Annotations = pick(g, nil, nil, map[string]string{v1alpha1.AnnotationAbandon: "true"})
	p.Finalizers = pick(g, p.Finalizers, p.Finalizers, p.Finalizers, p.Finalizers, nil)
	if g.IntN(8) == 0 {
		p.Spec.Placement = pick(g, nil, &v1alpha1.Placement{Zone: "a"})
	}
	out := generated{request: request{proxy: p, finalizing: g.IntN(5) == 0}, budget: g.IntN(2) == 0, cloud: g.adapter()}
	if g.IntN(2) == 0 {
		out.secrets = append(out.secrets, bootSecret("#!/bin/sh"))
	}
	if g.IntN(3) > 0 {
		out.probes = append(out.probes, proxytest.Probe(pick(g, proxytest.VMID, proxytest.VMID, "another"), pick(g, v1alpha1.VerdictHealthy, v1alpha1.VerdictUnhealthy, "")))
	}
	if g.IntN(10) == 0 {
		out.pods = append(out.pods, g.pod(p)) // its provider ran Pods once
	}
	g.vmStatus(p)
	return out
}

func (g generator) adapter() *fakeAdapter {
	f := &fakeAdapter{vm: pick(g, nil, nil, proxytest.VM(adapter.StateProvisioning), proxytest.RunningVM(), proxytest.RunningVM(), proxytest.VM(adapter.StateStopping), proxytest.VM(adapter.StateStopped))}
	if f.vm == nil {
		class := pick(g, "", "", adapter.FailurePermanent, adapter.FailureQuotaExceeded, adapter.FailureStockout, adapter.FailureRefused, adapter.FailureTransient, "Odd")
		if class != "" {
			f.failure = &adapter.Failure{Class: class, Message: "the cloud said no", RetryAfterSeconds: pick[int64](g, 0, 3, 1<<40, -7)}
		}
		return f
	}
	f.vm.SpecHash = pick(g, f.vm.SpecHash, f.vm.SpecHash, proxytest.OtherHash, "v9-other", "")
	f.vm.Port, f.vm.CreatedAt = pick(g, f.vm.Port, 0), pick(g, f.vm.CreatedAt, nil)
	if g.IntN(3) == 0 {
		names := slices.Sorted(maps.Keys(adapterErrors()))
		f.err = adapterErrors()[pick(g, names...)]
	}
	return f
}

func (g generator) vmStatus(p *v1alpha1.Proxy) {
	at := proxytest.Noon().Add(-pick(g, time.Second, time.Minute, 9*time.Minute))
	switch g.IntN(4) {
	case 0: // never synced
	case 1:
		reason := pick(g, v1alpha1.ReasonProvisioning, v1alpha1.ReasonQuotaExceeded, v1alpha1.ReasonStockout, v1alpha1.ReasonCloudRefused, v1alpha1.ReasonPermanentError, v1alpha1.ReasonCloudAdapterUnavailable, v1alpha1.ReasonProvisioningTimeout)
		proxytest.SetCondition(p, v1alpha1.ConditionProvisioned, no, reason, at)
		p.Status.SpecHash = pick(g, "", proxytest.Hash(p), proxytest.Hash(p), proxytest.OtherHash)
	case 2:
		proxytest.ServedBy(p, proxytest.RunningVM())
		proxytest.SetCondition(p, v1alpha1.ConditionProvisioned, no, v1alpha1.ReasonReplacing, at)
		p.Status.IP, p.Status.Port, p.Status.SpecHash = "", 0, pick(g, proxytest.Hash(p), proxytest.OtherHash)
	default:
		proxytest.ServedBy(p, proxytest.RunningVM())
		p.Status.SpecHash = pick(g, proxytest.Hash(p), proxytest.OtherHash)
	}
}

func (c generated) hook() string {
	if c.finalizing {
		return "finalize"
	}
	return "sync"
}

// generatedCases and generatedVMs are how many requests each point of the
// contract is tried on.
const (
	generatedCases = 120
	generatedVMs   = 60
)
