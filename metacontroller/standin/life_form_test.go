package standin_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/types"

	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/api/v1alpha1"
)

// observation is a request in the form in which two lives can be compared.
type observation struct {
	Step, Hook string
	Body       map[string]any
	// AtRest is the parent's status at the end of the step.
	AtRest any
}

// observations brings requests into their form. Of equal ones in a row, such as
// those of polls, the first stays. The parent's status is shown where a step has
// come to rest: a sync may overtake the event of the status that was written
// just before it.
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

// withoutNoise removes what depends on how often and by whom objects were
// written, and what the engine cannot know of its controller. The parent's
// conditions go too: their words tell whether a sync has overtaken an event.
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

// cleanMetadata removes from all objects within v what tells who wrote them and
// how often.
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

// withoutBooks removes the annotation by which dynamic apply keeps its books.
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

// naming gives UIDs numbers in the order in which they appear, and the names
// that derive from them with them.
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
