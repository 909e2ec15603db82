package main

import (
	"archive/tar"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/match"
)

// imageLayout is an OCI image layout: a folder that is a registry.
type imageLayout struct {
	dir  string
	path layout.Path
}

func newLayout(dir string) (*imageLayout, error) {
	path, err := layout.Write(dir, empty.Index)
	if err != nil {
		return nil, fmt.Errorf("make the OCI layout: %w", err)
	}
	return &imageLayout{dir: dir, path: path}, nil
}

// add puts an image in under a name, and returns its digest. containerd looks
// for a whole name, others for a tag.
func (l *imageLayout) add(image v1.Image, name string) (string, error) {
	digest, err := image.Digest()
	if err != nil {
		return "", err
	}
	full := name
	if registry, _, _ := strings.Cut(name, "/"); !strings.ContainsAny(registry, ".:") {
		full = "docker.io/" + name // as containerd understands a name without a registry
	}
	err = l.path.ReplaceImage(image, match.Digests(digest), layout.WithAnnotations(map[string]string{
		"org.opencontainers.image.ref.name": name,
		"io.containerd.image.name":          full,
	}))
	return digest.String(), err
}

// archive writes the layout as one tar file.
func (l *imageLayout) archive(path string) (err error) {
	f, err := os.Create(path)
	if err != nil {
		return err
	}
	defer func() {
		if e := f.Close(); err == nil {
			err = e
		}
	}()
	w := tar.NewWriter(f)
	if err := filepath.WalkDir(l.dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		return l.archiveFile(w, path)
	}); err != nil {
		return fmt.Errorf("archive the OCI layout: %w", err)
	}
	return w.Close()
}

func (l *imageLayout) archiveFile(w *tar.Writer, path string) error {
	name, err := filepath.Rel(l.dir, path)
	if err != nil {
		return err
	}
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return err
	}
	if err := w.WriteHeader(&tar.Header{Name: filepath.ToSlash(name), Mode: 0o644, Size: info.Size(), Format: tar.FormatPAX}); err != nil {
		return err
	}
	_, err = io.Copy(w, f)
	return err
}
