package webhooks

import (
	"bytes"
	"encoding/json"
	"fmt"
	"reflect"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	kjson "sigs.k8s.io/json"
)

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
