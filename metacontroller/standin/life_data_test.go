package standin_test

import (
	"encoding/json"
	"flag"
	"os"
	"path/filepath"
	"reflect"
	"testing"

	"github.com/stretchr/testify/require"
)

// update has the life with the real Metacontroller rewrite what is recorded of
// it: METACONTROLLER=/path go test ./metacontroller/standin -run TestLife -update
var update = flag.Bool("update", false, "rewrite the recorded lives under testdata")

// chapter is an observation as it is stored: what changed since the one before
// of the same sort, as a JSON merge patch (RFC 7396).
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
