// Package crd holds the CustomResourceDefinitions that `make generate` writes
// from the Go types, and hands them to what installs them without kubectl.
package crd

import (
	"embed"
	"fmt"
	"io/fs"
)

//go:embed crawl.example.com_*.yaml
var files embed.FS

// Manifests returns every CustomResourceDefinition, each as one YAML document, in
// the order of their file names.
func Manifests() [][]byte {
	names, err := fs.Glob(files, "*.yaml")
	if err != nil {
		panic(fmt.Sprintf("embedded CRDs: %v", err)) // the pattern is a constant
	}
	var out [][]byte
	for _, name := range names {
		content, err := files.ReadFile(name)
		if err != nil {
			panic(fmt.Sprintf("embedded CRD %s: %v", name, err)) // it was just listed
		}
		out = append(out, content)
	}
	return out
}
