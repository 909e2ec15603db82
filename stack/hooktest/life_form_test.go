package hooktest

import (
	"encoding/json"
	"flag"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/types"

	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/api/v1alpha1"
)

// observation is a normalised request, so that two lives can be compared.
type observation struct {
	Step, Hook string
	Body       map[string]any
	// AtRest is the parent's status at the end of the step.
	AtRest any
}

// observations normalises requests. Consecutive equal requests, such as those of
// polls, are merged. The parent's status is the one at the end of the step: within a
// step a request may contain a stale one.
func observations(t *testing.T, requests []request) []observation {
	t.Helper()
	names := &naming{}
	var out []observation
	last := map[bool]map[string]any{}
	for i, r := range requests {
		var body map[string]any
		require.NoError(t, json.Unmarshal(r.body, &body))
		normal, ok := names.walk(withoutNoise(body)).(map[string]any)
		require.True(t, ok)
		parent, ok := normal["parent"].(map[string]any)
		require.True(t, ok)
		status := parent["status"]
		delete(parent, "status")
		isCustomize := r.hook == "customize"
		if !reflect.DeepEqual(normal, last[isCustomize]) {
			out = append(out, observation{Step: r.step, Hook: r.hook, Body: normal})
			last[isCustomize] = normal
		}
		stepEnds := i == len(requests)-1 || requests[i+1].step != r.step
		if end := &out[len(out)-1]; stepEnds && !isCustomize && end.Step == r.step {
			end.AtRest = status
		}
	}
	return out
}

// withoutNoise removes fields that depend on the number and the managers of writes,
// and the fields of the controller that its manifest lacks. It also removes the
// parent's conditions: their messages depend on whether the cached parent is stale.
func withoutNoise(body map[string]any) map[string]any {
	if controller, ok := body["controller"].(map[string]any); ok {
		metadata, _ := controller["metadata"].(map[string]any)
		body["controller"] = map[string]any{
			"apiVersion": controller["apiVersion"], "kind": controller["kind"],
			"name": metadata["name"], "spec": controller["spec"],
		}
	}
	if parent, ok := body["parent"].(map[string]any); ok {
		if status, ok := parent["status"].(map[string]any); ok {
			delete(status, "conditions")
		}
	}
	cleanMetadata(body)
	return body
}

// cleanMetadata removes fields that depend on the number and the managers of writes
// from all objects within v.
func cleanMetadata(v any) {
	switch v := v.(type) {
	case map[string]any:
		if metadata, ok := v["metadata"].(map[string]any); ok {
			delete(metadata, "managedFields")
			delete(metadata, "resourceVersion")
			delete(metadata, "deletionGracePeriodSeconds") // 0 for a moment before the end
			withoutBooks(metadata)
		}
		for _, value := range v {
			cleanMetadata(value)
		}
	case []any:
		for _, value := range v {
			cleanMetadata(value)
		}
	}
}

// withoutBooks removes the last-applied annotation of dynamic apply.
func withoutBooks(metadata map[string]any) {
	annotations, ok := metadata["annotations"].(map[string]any)
	if !ok {
		return
	}
	delete(annotations, "metacontroller.k8s.io/last-applied-configuration")
	if len(annotations) == 0 {
		delete(metadata, "annotations")
	}
}

var (
	uidPattern  = regexp.MustCompile(`[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}`)
	timePattern = regexp.MustCompile(`^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ$`)
	hostPattern = regexp.MustCompile(`http://127\.0\.0\.1:\d+/`)
)

// naming replaces UIDs, and names that derive from them, by numbers in the order of
// their appearance.
type naming struct {
	uids []string
}

func (n *naming) number(uid string) int {
	i := slices.Index(n.uids, uid)
	if i < 0 {
		i = len(n.uids)
		n.uids = append(n.uids, uid)
	}
	return i + 1
}

func (n *naming) text(s string) string {
	if timePattern.MatchString(s) {
		return "a time"
	}
	s = hostPattern.ReplaceAllString(s, "http://hooks/")
	s = uidPattern.ReplaceAllStringFunc(s, func(uid string) string { return fmt.Sprintf("uid-%d", n.number(uid)) })
	for i, uid := range n.uids {
		s = strings.ReplaceAll(s, v1alpha1.InstanceName(types.UID(uid)), fmt.Sprintf("instance-of-uid-%d", i+1))
	}
	return s
}

// walk visits the parent first, which names its children.
func (n *naming) walk(v any) any {
	switch v := v.(type) {
	case string:
		return n.text(v)
	case []any:
		out := make([]any, 0, len(v))
		for _, value := range v {
			out = append(out, n.walk(value))
		}
		return out
	case map[string]any:
		keys := slices.Sorted(maps.Keys(v))
		if i := slices.Index(keys, "parent"); i > 0 {
			keys = slices.Concat([]string{"parent"}, slices.Delete(keys, i, i+1))
		}
		out := make(map[string]any, len(v))
		for _, key := range keys {
			value := n.walk(v[key])
			out[n.text(key)] = value
		}
		return out
	}
	return v
}

// essence keeps the fields of an observation that depend on the driver: the children,
// their state, and the changes of the test. Messages, templates and hashes are the
// hooks' and change with them.
func essence(o observation) observation {
	keep := map[string]any{}
	for name, value := range o.Body {
		keep[name] = value
	}
	for _, group := range []string{"children", "related"} {
		kinds, ok := o.Body[group].(map[string]any)
		if !ok {
			continue
		}
		shown := map[string]any{}
		for kind, objects := range kinds {
			byName := map[string]any{}
			for name, object := range objects.(map[string]any) {
				byName[name] = pick(object, essentials(kind)...)
			}
			shown[kind] = byName
		}
		keep[group] = shown
	}
	atRest := pick(o.AtRest, "phase", "observedGeneration", "ip", "port", "instanceID")
	return observation{Step: o.Step, Hook: o.Hook, Body: keep, AtRest: atRest}
}

// essentials are the compared paths in an object of that kind.
func essentials(kind string) []string {
	common := []string{
		"apiVersion", "kind", "metadata.name", "metadata.namespace", "metadata.uid", "metadata.generation",
		"metadata.ownerReferences", "metadata.labels", "metadata.deletionTimestamp",
	}
	switch kind {
	case "Pod.v1":
		return append(common, "spec.nodeName", "status.phase", "status.podIP")
	case "Secret.v1":
		return append(common, "data")
	}
	return append(common, "spec.instanceID", "spec.host", "spec.port", "spec.healthCheck.interval", "status.instanceID", "status.verdict")
}

// pick returns v with these paths alone.
func pick(v any, paths ...string) any {
	out := map[string]any{}
	for _, path := range paths {
		from, to := v, out
		fields := strings.Split(path, ".")
		for i, field := range fields {
			m, _ := from.(map[string]any)
			value, found := m[field]
			if !found {
				break
			}
			if i == len(fields)-1 {
				to[field] = value
				break
			}
			if to[field] == nil {
				to[field] = map[string]any{}
			}
			from, to = value, to[field].(map[string]any)
		}
	}
	return out
}

// update rewrites the recorded lives from the real Metacontroller:
// METACONTROLLER=/path go test ./stack/hooktest -run TestLife -update
var update = flag.Bool("update", false, "rewrite the recorded lives under testdata")

// chapter is a stored observation: a JSON merge patch (RFC 7396) of the previous one
// of the same hook.
type chapter struct {
	Step   string         `json:"step"`
	Hook   string         `json:"hook"`
	Change map[string]any `json:"change"`
	AtRest any            `json:"atRest"`
}

func lifeFile(strategy string) string { return filepath.Join("testdata", "life", strategy+".json") }

func saveLife(t *testing.T, strategy string, life []observation) {
	t.Helper()
	var chapters []chapter
	before := map[bool]map[string]any{}
	for _, o := range life {
		sort := o.Hook == "customize"
		chapters = append(chapters, chapter{Step: o.Step, Hook: o.Hook, Change: difference(before[sort], o.Body), AtRest: o.AtRest})
		before[sort] = o.Body
	}
	text, err := json.MarshalIndent(chapters, "", " ")
	require.NoError(t, err)
	require.NoError(t, os.MkdirAll(filepath.Dir(lifeFile(strategy)), 0o755))
	require.NoError(t, os.WriteFile(lifeFile(strategy), append(text, '\n'), 0o644))
}

func loadLife(t *testing.T, strategy string) []observation {
	t.Helper()
	text, err := os.ReadFile(lifeFile(strategy))
	require.NoError(t, err)
	var chapters []chapter
	require.NoError(t, json.Unmarshal(text, &chapters))
	var life []observation
	before := map[bool]map[string]any{}
	for _, c := range chapters {
		sort := c.Hook == "customize"
		before[sort] = patched(before[sort], c.Change)
		life = append(life, observation{Step: c.Step, Hook: c.Hook, Body: before[sort], AtRest: c.AtRest})
	}
	return life
}

// difference is the merge patch from before to after. Neither holds nulls.
func difference(before, after map[string]any) map[string]any {
	patch := map[string]any{}
	for key := range before {
		if _, stays := after[key]; !stays {
			patch[key] = nil
		}
	}
	for key, value := range after {
		old, had := before[key]
		oldMap, wasMap := old.(map[string]any)
		newMap, isMap := value.(map[string]any)
		switch {
		case had && reflect.DeepEqual(old, value):
		case wasMap && isMap:
			patch[key] = difference(oldMap, newMap)
		default:
			patch[key] = value
		}
	}
	return patch
}

// patched returns before with a merge patch applied.
func patched(before, patch map[string]any) map[string]any {
	after := map[string]any{}
	for key, value := range before {
		after[key] = value
	}
	for key, value := range patch {
		oldMap, wasMap := before[key].(map[string]any)
		newMap, isMap := value.(map[string]any)
		switch {
		case value == nil:
			delete(after, key)
		case wasMap && isMap:
			after[key] = patched(oldMap, newMap)
		default:
			after[key] = value
		}
	}
	return after
}

func TestLivesAreStoredWhole(t *testing.T) {
	one := map[string]any{"a": map[string]any{"b": "1", "c": map[string]any{}}, "d": []any{"x"}, "e": true}
	two := map[string]any{"a": map[string]any{"c": map[string]any{"f": "2"}}, "d": []any{"x", "y"}}
	require.Equal(t, two, patched(one, difference(one, two)))
	require.Equal(t, one, patched(two, difference(two, one)))
	require.Equal(t, one, patched(nil, difference(nil, one)))
	require.Empty(t, difference(one, one))
}
