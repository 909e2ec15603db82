package v1alpha1

import (
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"sigs.k8s.io/yaml"
)

func TestSpecHashGolden(t *testing.T) {
	content, err := os.ReadFile("testdata/spechash.yaml")
	require.NoError(t, err)
	var cases []struct {
		Name      string
		Placement *Placement
		CloudInit string
		Port      int32
		Hash      string
	}
	require.NoError(t, yaml.UnmarshalStrict(content, &cases))
	require.NotEmpty(t, cases)
	for _, tc := range cases {
		t.Run(tc.Name, func(t *testing.T) {
			assert.Equal(t, tc.Hash, SpecHash(tc.Placement, tc.CloudInit, tc.Port))
		})
	}
}

// The hash input, spelled out: the digest of exactly this JSON.
func TestSpecHashInput(t *testing.T) {
	in := hashedSpec{
		CloudInit: "x",
		Placement: (&Placement{Zone: "z", MachineType: "m", NetworkTags: []NetworkTag{"b", "a"}}).forHash(),
		Port:      3128,
	}
	assert.Equal(t, `{"cloudInit":"x","placement":{"machineType":"m","networkTags":["a","b"],"zone":"z"},"port":3128}`, string(canonicalJSON(in)))
	assert.Equal(t, `{}`, string(canonicalJSON(hashedSpec{})))
}

func TestSpecHashForm(t *testing.T) {
	hash := SpecHash(nil, "", 3128)
	assert.Regexp(t, `^v1-[0-9a-f]{40}$`, hash)
	assert.LessOrEqual(t, len(hash), 63, "it must fit a label of a Google VM")
	assert.True(t, SpecHashKnown(hash))
}

func TestSpecHashIsSensitive(t *testing.T) {
	base := SpecHash(&Placement{Zone: "a"}, "x", 3128)
	for name, other := range map[string]string{
		"zone":              SpecHash(&Placement{Zone: "b"}, "x", 3128),
		"no placement":      SpecHash(nil, "x", 3128),
		"another field":     SpecHash(&Placement{MachineType: "a"}, "x", 3128),
		"one more field":    SpecHash(&Placement{Zone: "a", Image: "i"}, "x", 3128),
		"user data":         SpecHash(&Placement{Zone: "a"}, "y", 3128),
		"no user data":      SpecHash(&Placement{Zone: "a"}, "", 3128),
		"user data's space": SpecHash(&Placement{Zone: "a"}, "x\n", 3128),
		"port":              SpecHash(&Placement{Zone: "a"}, "x", 3129),
	} {
		assert.NotEqual(t, base, other, name)
	}
	assert.Equal(t, base, SpecHash(&Placement{Zone: "a"}, "x", 3128))
}

func TestSpecHashOfLists(t *testing.T) {
	tags := func(tags ...NetworkTag) string { return SpecHash(&Placement{NetworkTags: tags}, "", 3128) }
	assert.Equal(t, tags("a", "b"), tags("b", "a"), "tags are a set")
	assert.NotEqual(t, tags("a"), tags("a", "b"))

	zones := func(zones ...Zone) string { return SpecHash(&Placement{FallbackZones: zones}, "", 3128) }
	assert.NotEqual(t, zones("a", "b"), zones("b", "a"), "fallback zones are tried in order")
}

func TestSpecHashLeavesItsArgumentAlone(t *testing.T) {
	p := &Placement{NetworkTags: []NetworkTag{"b", "a"}}
	SpecHash(p, "", 3128)
	assert.Equal(t, []NetworkTag{"b", "a"}, p.NetworkTags)
}

// As JSON strings these two would be equal.
func TestSpecHashOfBinaryUserData(t *testing.T) {
	a, b := SpecHash(nil, "\x1f\x8b\x01", 3128), SpecHash(nil, "\x1f\x8c\x01", 3128)
	assert.NotEqual(t, a, b)
	assert.Equal(t, a, SpecHash(nil, "\x1f\x8b\x01", 3128))
	assert.NotEqual(t, a, SpecHash(nil, "H4sB", 3128), "nor is it its own base64")
}

func TestSpecHashKnown(t *testing.T) {
	for hash, want := range map[string]bool{
		"v1-0123456789abcdef0123456789abcdef01234567": true,
		"":           false,
		"v2-0123456": false,
		"0123456789": false,
		"v1":         false,
		"v1-":        false,
		"v1-edited":  false,
		"v1-0123456789abcdef0123456789abcdef0123456":   false, // a digit short
		"v1-0123456789abcdef0123456789abcdef012345678": false, // one too many
		"v1-0123456789ABCDEF0123456789abcdef01234567":  false,
		"v1-0123456789abcdefg123456789abcdef01234567":  false,
		"v2-0123456789abcdef0123456789abcdef01234567":  false,
	} {
		assert.Equal(t, want, SpecHashKnown(hash), hash)
	}
}

func FuzzSpecHash(f *testing.F) {
	f.Add("zone", "tag", "user data", int32(3128))
	f.Add("", "", "\xff\xfe", int32(-1))
	f.Fuzz(func(t *testing.T, zone, tag, cloudInit string, port int32) {
		p := &Placement{Zone: zone, NetworkTags: []NetworkTag{NetworkTag(tag)}}
		hash := SpecHash(p, cloudInit, port)
		if hash != SpecHash(p, cloudInit, port) || len(hash) != 43 || !SpecHashKnown(hash) {
			t.Fatalf("hash %q", hash)
		}
		if hash == SpecHash(p, cloudInit+"x", port) {
			t.Fatal("more user data, same hash")
		}
		if strings.ToLower(hash) != hash {
			t.Fatal("a label takes lower case only")
		}
	})
}
