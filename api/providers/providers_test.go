package providers

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func types() []string { return []string{TypeKubernetes, TypeGCP} }

const both = `
providers:
- {name: pods, type: kubernetes, kubernetes: {image: squid, anything: true}}
- {name: gcp-eu, type: gcp, gcp: {project: demo}}
`

func TestParseKeepsOrderAndBlocks(t *testing.T) {
	entries, err := Parse([]byte(both), types()...)
	require.NoError(t, err)
	require.Len(t, entries, 2)
	assert.Equal(t, "pods", entries[0].Name)
	assert.JSONEq(t, `{"image":"squid","anything":true}`, string(entries[0].Block), "the block's owner reads it")
	var cfg GCP
	require.NoError(t, entries[1].Decode(&cfg))
	assert.Equal(t, GCP{Project: "demo"}, cfg)

	entries, err = Parse([]byte("providers: []"), types()...)
	require.NoError(t, err)
	assert.Empty(t, entries)
}

func TestParseRefuses(t *testing.T) {
	for name, tt := range map[string]struct {
		text string
		want []string
	}{
		"nothing":       {"", []string{"providers: is missing", `"providers: []"`}},
		"null":          {"providers:", []string{"providers: is missing"}},
		"not YAML":      {"providers: [", []string{"not valid YAML"}},
		"a list":        {"- name: x", []string{"cannot unmarshal array"}},
		"unknown top":   {both + "extra: 1", []string{`unknown field "extra"`}},
		"repeated key":  {"providers: []\nproviders: []", []string{"already set"}},
		"wrong case":    {"Providers: []", []string{`unknown field "Providers"`}},
		"no name":       {"providers: [{type: gcp, gcp: {}}]", []string{"providers[0].name: is missing"}},
		"name no text":  {"providers: [{name: 7, type: gcp, gcp: {}}]", []string{"providers[0].name: is missing, or not text"}},
		"bad name":      {"providers: [{name: Pods_1, type: gcp, gcp: {}}]", []string{`providers[0].name: "Pods_1"`}},
		"long name":     {"providers: [{name: " + strings.Repeat("n", 64) + ", type: gcp, gcp: {}}]", []string{"no more than 63"}},
		"taken name":    {"providers: [{name: a, type: gcp, gcp: {}}, {name: a, type: gcp, gcp: {}}]", []string{`providers[1].name: "a" is taken`}},
		"no type":       {"providers: [{name: a}]", []string{"providers[0].type: is missing"}},
		"unknown type":  {"providers: [{name: a, type: aws, aws: {}}]", []string{`providers[0].type: is "aws", want kubernetes or gcp`}},
		"no block":      {"providers: [{name: a, type: gcp}]", []string{"providers[0].gcp: is missing"}},
		"block of null": {"providers: [{name: a, type: gcp, gcp: }]", []string{"providers[0].gcp: is missing"}},
		"foreign block": {"providers: [{name: a, type: gcp, gcp: {}, kubernetes: {}}]", []string{"providers[0].kubernetes: does not fit type gcp"}},
		"two at once":   {"providers: [{name: a}, {type: gcp}]", []string{"providers[0].type", "providers[1].name"}},
		"huge":          {strings.Repeat("#", MaxBytes+1), []string{"more than 1048576 bytes"}},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := Parse([]byte(tt.text), types()...)
			for _, want := range tt.want {
				assert.ErrorContains(t, err, want)
			}
		})
	}
}

func TestDecodeIsStrict(t *testing.T) {
	for block, want := range map[string]string{
		`{"projekt":"x"}`:               `gcp: unknown field "projekt"`,
		`{"Project":"x"}`:               `gcp: unknown field "Project"`,
		`{"project":"x","project":"y"}`: `gcp: duplicate field "project"`,
		`{"project":7}`:                 "gcp: json: cannot unmarshal",
	} {
		var cfg GCP
		assert.ErrorContains(t, Entry{Type: TypeGCP, Block: []byte(block)}.Decode(&cfg), want)
	}
}

func TestRead(t *testing.T) {
	_, err := Read(filepath.Join(t.TempDir(), "none"))
	require.ErrorIs(t, err, os.ErrNotExist)
	_, err = Read("/dev/zero")
	require.ErrorContains(t, err, "/dev/zero has more than 1048576 bytes; is it the provider config?")
}

func FuzzParse(f *testing.F) {
	for _, seed := range []string{both, "", "providers: []", "providers: [null, {}]", "providers: [{name: a, type: gcp, gcp: {project: x, networkTags: [A]}}]"} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		entries, err := Parse(text, types()...)
		if err != nil {
			require.NotEmpty(t, err.Error())
			return
		}
		for _, e := range entries {
			require.NotEmpty(t, e.Name)
			require.Equal(t, byte('{'), e.Block[0])
			var cfg GCP
			if e.Type == TypeGCP && e.Decode(&cfg) == nil && cfg.Complete() == nil {
				require.NotEmpty(t, cfg.Project)
				require.NotEmpty(t, cfg.UserDataKey)
			}
		}
	})
}
