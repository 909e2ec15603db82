package v1alpha1

import (
	"reflect"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestSpecHashIgnoresPlacementFieldsThatAreNotSet(t *testing.T) {
	none := SpecHash(nil, "", 3128)
	assert.Equal(t, none, SpecHash(&Placement{}, "", 3128))
	assert.Equal(t, none, SpecHash(&Placement{NetworkTags: []NetworkTag{}, FallbackZones: []Zone{}}, "", 3128))

	zone := SpecHash(&Placement{Zone: "europe-west1-b"}, "", 3128)
	assert.Equal(t, zone, SpecHash(&Placement{Zone: "europe-west1-b", NetworkTags: []NetworkTag{}}, "", 3128))
}

// An edit of a field that is not hashed would have no effect.
func TestSpecHashCoversEveryFieldOfPlacement(t *testing.T) {
	seen := map[string]string{SpecHash(nil, "", 3128): "nothing"}
	for i := range reflect.TypeFor[Placement]().NumField() {
		var p Placement
		field := reflect.TypeFor[Placement]().Field(i)
		value := reflect.ValueOf(&p).Elem().Field(i)
		switch value.Kind() {
		case reflect.String:
			value.SetString("x")
		case reflect.Int64:
			value.SetInt(10)
		case reflect.Bool:
			value.SetBool(true)
		case reflect.Slice:
			value.Set(reflect.MakeSlice(value.Type(), 1, 1))
			value.Index(0).SetString("x")
		default:
			require.Failf(t, "extend this test", "field %s has kind %s", field.Name, value.Kind())
		}
		hash := SpecHash(&p, "", 3128)
		assert.Empty(t, seen[hash], "%s hashes like", field.Name)
		seen[hash] = field.Name
	}
}
