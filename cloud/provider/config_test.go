package provider

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/api/providers"
)

type fakeConfig struct {
	Project string `json:"project"`
}

func testRegistry() Registry {
	return Registry{"fake": func(_ context.Context, e providers.Entry, _ string) (Cloud, error) {
		var cfg fakeConfig
		if err := e.Decode(&cfg); err != nil {
			return nil, err
		}
		if cfg.Project == "" {
			return nil, errors.New("fake.project is required")
		}
		return &fakeCloud{}, nil
	}}
}

func TestBuildKeepsOrderAndSkipsKubernetes(t *testing.T) {
	named, err := testRegistry().Build(t.Context(), []byte(`
providers:
- {name: b, type: fake, fake: {project: p}}
- {name: pods, type: kubernetes, kubernetes: {image: squid, whatever: true}}
- {name: a, type: fake, fake: {project: q}}
`), "")
	require.NoError(t, err)
	require.Len(t, named, 2)
	assert.Equal(t, "b", named[0].Name)
	assert.Equal(t, "fake", named[0].Type)
	assert.Equal(t, "a", named[1].Name)
}

func TestBuildRefuses(t *testing.T) {
	tests := map[string]struct{ text, want string }{
		"empty":            {"", "providers: is missing"},
		"no cloud":         {"providers: [{name: p, type: kubernetes, kubernetes: {}}]", "at least one of type fake"},
		"not yaml":         {"providers: [", "not valid YAML"},
		"unknown top":      {"provider: []", `unknown field "provider"`},
		"repeated key":     {"providers: []\nproviders: []", "already set"},
		"no name":          {"providers: [{type: fake, fake: {project: p}}]", "providers[0].name: is missing"},
		"name not text":    {"providers: [{name: 7, type: fake, fake: {project: p}}]", "providers[0].name: is missing, or not text"},
		"long name":        {"providers: [{name: " + strings.Repeat("n", 64) + ", type: fake, fake: {project: p}}]", "must be no more than 63"},
		"no type":          {"providers: [{name: p, fake: {project: p}}]", "providers[0].type: is missing"},
		"unknown type":     {"providers: [{name: p, type: azure, azure: {}}]", `providers[0].type: is "azure", want fake or kubernetes`},
		"no block":         {"providers: [{name: p, type: fake}]", "providers[0].fake: is missing"},
		"block of null":    {"providers: [{name: p, type: fake, fake: null}]", "providers[0].fake: is missing"},
		"foreign block":    {"providers: [{name: p, type: fake, fake: {project: p}, gcp: {}}]", "providers[0].gcp: does not fit type fake"},
		"unknown in block": {"providers: [{name: p, type: fake, fake: {projet: p}}]", `providers[0] "p": fake: unknown field "projet"`},
		"case in block":    {"providers: [{name: p, type: fake, fake: {Project: p}}]", `unknown field "Project"`},
		"constructor":      {"providers: [{name: p, type: fake, fake: {}}]", `providers[0] "p": fake.project is required`},
		"same name":        {"providers: [{name: p, type: fake, fake: {project: p}}, {name: p, type: kubernetes, kubernetes: {}}]", `providers[1].name: "p" is taken`},
		"huge":             {strings.Repeat("#", providers.MaxBytes+1), "more than"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			_, err := testRegistry().Build(t.Context(), []byte(tt.text), "")
			assert.ErrorContains(t, err, tt.want)
		})
	}
}

func TestLoadNamesTheFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "providers.yaml")
	_, err := testRegistry().Load(t.Context(), path, "")
	assert.ErrorIs(t, err, os.ErrNotExist)
	require.NoError(t, os.WriteFile(path, []byte("x: 1"), 0o600))
	_, err = testRegistry().Load(t.Context(), path, "")
	assert.ErrorContains(t, err, path)
	require.NoError(t, os.WriteFile(path, []byte("providers: [{name: p, type: fake, fake: {project: x}}]"), 0o600))
	_, err = testRegistry().Load(t.Context(), path, "")
	assert.NoError(t, err)
}

func FuzzBuild(f *testing.F) {
	f.Add([]byte("providers: [{name: p, type: fake, fake: {project: x}}]"))
	f.Add([]byte("providers: [{name: p, type: fake, fake: [}]"))
	f.Add([]byte("providers: [null, {}]"))
	f.Fuzz(func(t *testing.T, text []byte) {
		named, err := testRegistry().Build(context.Background(), text, "")
		require.NotEqual(t, err == nil, len(named) == 0)
	})
}

func TestListingCovers(t *testing.T) {
	full := Listing{}
	assert.True(t, full.Covers("a"))
	assert.True(t, full.Complete())

	oneDown := Listing{Unreachable: []string{"b"}}
	assert.True(t, oneDown.Covers("a"))
	assert.False(t, oneDown.Covers("b"))
	assert.False(t, oneDown.Complete())

	vague := Listing{Partial: true, Answered: map[string]bool{"a": true, "b": true}, Unreachable: []string{"b"}}
	assert.True(t, vague.Covers("a"))
	assert.False(t, vague.Covers("b"), "named as unreachable wins")
	assert.False(t, vague.Covers("c"))
	assert.False(t, vague.Complete())
}
