package main

import (
	"archive/tar"
	"bytes"
	"debug/elf"
	"errors"
	"fmt"
	"io"
	"os"
	"runtime"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/google/go-containerregistry/pkg/v1/types"
)

// user is nonroot, as in distroless images; the manifests ask for it, too.
const user = "65532:65532"

// file is one entry of a layer.
type file struct {
	name    string
	mode    int64
	content []byte
}

func programImage(o options, program, path string) (v1.Image, error) {
	binary, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	cas, err := os.ReadFile(o.rootCAs)
	if err != nil {
		return nil, fmt.Errorf("certificate authorities: %w: install ca-certificates, or name a file with --root-cas", err)
	}
	base := []file{
		{"etc/passwd", 0o644, []byte("nonroot:x:65532:65532::/:/sbin/nologin\n")},
		{"etc/group", 0o644, []byte("nonroot:x:65532:\n")},
		{"etc/nsswitch.conf", 0o644, []byte("hosts: files dns\n")},
		{"etc/ssl/certs/ca-certificates.crt", 0o644, cas},
	}
	// What changes seldom comes first: registries and nodes keep layers.
	image, err := withLayers(o.created, base, []file{{program, 0o755, binary}})
	if err != nil {
		return nil, err
	}
	return configured(image, o, program, v1.Config{User: user, Entrypoint: []string{"/" + program}, WorkingDir: "/"})
}

func squidImage(o options) (v1.Image, error) {
	layer, err := tarball.LayerFromFile(o.squid, tarball.WithMediaType(types.OCILayer))
	if err != nil {
		return nil, err
	}
	image, err := mutate.AppendLayers(ociImage(), layer)
	if err != nil {
		return nil, err
	}
	return configured(image, o, "squid", v1.Config{
		User: "13:13", Entrypoint: []string{"/usr/sbin/squid", "-N"},
		Env: []string{"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"},
	})
}

func ociImage() v1.Image {
	return mutate.ConfigMediaType(mutate.MediaType(empty.Image, types.OCIManifestSchema1), types.OCIConfigJSON)
}

func withLayers(created time.Time, layers ...[]file) (v1.Image, error) {
	image := ociImage()
	for _, files := range layers {
		content, err := tarOf(created, files)
		if err != nil {
			return nil, err
		}
		open := func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(content)), nil }
		layer, err := tarball.LayerFromOpener(open, tarball.WithMediaType(types.OCILayer))
		if err != nil {
			return nil, err
		}
		if image, err = mutate.AppendLayers(image, layer); err != nil {
			return nil, err
		}
	}
	return image, nil
}

// tarOf holds nothing that differs from one machine or moment to another.
func tarOf(created time.Time, files []file) ([]byte, error) {
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	for _, f := range files {
		header := &tar.Header{Name: f.name, Mode: f.mode, Size: int64(len(f.content)), ModTime: created, Format: tar.FormatPAX}
		if err := w.WriteHeader(header); err != nil {
			return nil, err
		}
		if _, err := w.Write(f.content); err != nil {
			return nil, err
		}
	}
	return b.Bytes(), w.Close()
}

func configured(image v1.Image, o options, title string, config v1.Config) (v1.Image, error) {
	config.Labels = map[string]string{
		"org.opencontainers.image.title":    title,
		"org.opencontainers.image.version":  o.version,
		"org.opencontainers.image.revision": o.revision,
	}
	now, err := image.ConfigFile()
	if err != nil {
		return nil, err
	}
	now = now.DeepCopy()
	now.Config, now.Created = config, v1.Time{Time: o.created}
	now.OS, now.Architecture = "linux", runtime.GOARCH
	for i := range now.History {
		now.History[i].Created = now.Created
	}
	return mutate.ConfigFile(image, now)
}

// checkStatic refuses a program that would look for libraries which the image
// does not have.
func checkStatic(path string) error {
	f, err := elf.Open(path)
	if err != nil {
		return fmt.Errorf("read program: %w", err)
	}
	defer f.Close()
	for _, p := range f.Progs {
		if p.Type == elf.PT_INTERP {
			return errors.New("the program is not statically linked: build it with CGO_ENABLED=0")
		}
	}
	return nil
}
