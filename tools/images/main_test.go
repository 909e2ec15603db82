package main

import (
	"archive/tar"
	"encoding/json"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/validate"
)

const program = "package main\n\nfunc main() { println(\"hello\") }\n"

// build compiles a program named hello.
func build(t *testing.T, env ...string) string {
	t.Helper()
	dir := t.TempDir()
	for name, content := range map[string]string{"main.go": program, "go.mod": "module example.com/hello\n\ngo 1.26\n"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	cmd := exec.Command("go", "build", "-trimpath", "-o", "hello", ".")
	cmd.Dir, cmd.Env = dir, append(os.Environ(), append(env, "GOFLAGS=")...)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	return dir
}

func flagsFor(t *testing.T, bin, out string) []string {
	t.Helper()
	cas := filepath.Join(t.TempDir(), "cas.crt")
	if err := os.WriteFile(cas, []byte("certificates"), 0o600); err != nil {
		t.Fatal(err)
	}
	return []string{"--bin", bin, "--programs", "hello", "--out", out, "--root-cas", cas, "--version", "v9", "--revision", "abc", "--created", "1700000000"}
}

func image(t *testing.T, out string) v1.Image {
	t.Helper()
	index, err := layout.ImageIndexFromPath(filepath.Join(out, "oci"))
	if err != nil {
		t.Fatal(err)
	}
	manifest, err := index.IndexManifest()
	if err != nil || len(manifest.Manifests) != 1 {
		t.Fatalf("index: %v, %v", manifest, err)
	}
	if name := manifest.Manifests[0].Annotations["io.containerd.image.name"]; name != "docker.io/egress-proxies/hello:v9" {
		t.Errorf("containerd would know it as %s", name)
	}
	found, err := index.Image(manifest.Manifests[0].Digest)
	if err != nil {
		t.Fatal(err)
	}
	return found
}

func TestImageIsWholeAndRunsAsNobody(t *testing.T) {
	out := t.TempDir()
	if err := run(flagsFor(t, build(t, "CGO_ENABLED=0"), out), io.Discard); err != nil {
		t.Fatal(err)
	}
	found := image(t, out)
	if err := validate.Image(found); err != nil {
		t.Error(err)
	}
	config, err := found.ConfigFile()
	if err != nil {
		t.Fatal(err)
	}
	if config.Config.User != user || strings.Join(config.Config.Entrypoint, " ") != "/hello" || config.Config.Labels["org.opencontainers.image.revision"] != "abc" {
		t.Errorf("config %+v", config.Config)
	}
	if info, err := os.Stat(filepath.Join(out, "images.tar")); err != nil || info.Size() == 0 {
		t.Errorf("archive: %v", err)
	}
}

func TestTwoBuildsGiveOneImage(t *testing.T) {
	bin := build(t, "CGO_ENABLED=0")
	var digests [2]v1.Hash
	for i := range digests {
		out := t.TempDir()
		for range 2 { // and a second run over the first
			if err := run(flagsFor(t, bin, out), io.Discard); err != nil {
				t.Fatal(err)
			}
		}
		var err error
		if digests[i], err = image(t, out).Digest(); err != nil {
			t.Fatal(err)
		}
	}
	if digests[0] != digests[1] {
		t.Errorf("digests differ: %v", digests)
	}
}

func TestSBOMNamesTheProgramAndItsGo(t *testing.T) {
	out := t.TempDir()
	if err := run(flagsFor(t, build(t, "CGO_ENABLED=0"), out), io.Discard); err != nil {
		t.Fatal(err)
	}
	content, err := os.ReadFile(filepath.Join(out, "sbom", "hello.spdx.json"))
	if err != nil {
		t.Fatal(err)
	}
	var doc document
	if err := json.Unmarshal(content, &doc); err != nil {
		t.Fatal(err)
	}
	if len(doc.Packages) != 2 || doc.Packages[0].Version != "v9" || doc.Packages[1].Name != "stdlib" || doc.Packages[1].Version == "" {
		t.Errorf("packages %+v", doc.Packages)
	}
}

func TestWhatCannotBeAnImageIsRefused(t *testing.T) {
	notAProgram := t.TempDir()
	if err := os.WriteFile(filepath.Join(notAProgram, "hello"), []byte("#!/bin/sh\n"), 0o700); err != nil {
		t.Fatal(err)
	}
	tests := map[string]struct {
		args []string
		want string
	}{
		"no program":     {flagsFor(t, t.TempDir(), t.TempDir()), "image of hello"},
		"not a program":  {flagsFor(t, notAProgram, t.TempDir()), "image of hello"},
		"no such CAs":    {append(flagsFor(t, build(t, "CGO_ENABLED=0"), t.TempDir()), "--root-cas", "/no/such"), "ca-certificates"},
		"no such squid":  {append(flagsFor(t, build(t, "CGO_ENABLED=0"), t.TempDir()), "--squid", "/no/such"), "image of squid"},
		"nothing at all": {nil, "--bin"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			if err := run(tt.args, io.Discard); err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("got %v, want something about %s", err, tt.want)
			}
		})
	}
}

func TestSquidImageHoldsTheGivenFiles(t *testing.T) {
	root := filepath.Join(t.TempDir(), "squid.tar")
	f, err := os.Create(root)
	if err != nil {
		t.Fatal(err)
	}
	w := tar.NewWriter(f)
	if err := w.WriteHeader(&tar.Header{Name: "usr/sbin/squid", Mode: 0o755}); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	found, err := squidImage(options{squid: root})
	if err != nil {
		t.Fatal(err)
	}
	if layers, err := found.Layers(); err != nil || len(layers) != 1 {
		t.Errorf("layers %v, %v", layers, err)
	}
	config, err := found.ConfigFile()
	if err != nil || config.Config.User != "13:13" {
		t.Errorf("config %+v, %v", config, err)
	}
}
