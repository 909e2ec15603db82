package main

import (
	"crypto/sha256"
	"debug/buildinfo"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"os"
	"runtime/debug"
	"strings"
	"time"
)

// document is an SPDX 2.3 document
// (https://spdx.github.io/spdx-spec/v2.3/document-creation-information/), as far
// as it is used here.
type document struct {
	Version       string         `json:"spdxVersion"`
	DataLicense   string         `json:"dataLicense"`
	ID            string         `json:"SPDXID"`
	Name          string         `json:"name"`
	Namespace     string         `json:"documentNamespace"`
	CreationInfo  creationInfo   `json:"creationInfo"`
	Packages      []bomPackage   `json:"packages"`
	Relationships []relationship `json:"relationships"`
}

type creationInfo struct {
	Created  string   `json:"created"`
	Creators []string `json:"creators"`
}

type bomPackage struct {
	ID           string        `json:"SPDXID"`
	Name         string        `json:"name"`
	Version      string        `json:"versionInfo,omitempty"`
	Location     string        `json:"downloadLocation"`
	Analyzed     bool          `json:"filesAnalyzed"`
	Checksums    []checksum    `json:"checksums,omitempty"`
	ExternalRefs []externalRef `json:"externalRefs,omitempty"`
}

type checksum struct {
	Algorithm string `json:"algorithm"`
	Value     string `json:"checksumValue"`
}

type externalRef struct {
	Category string `json:"referenceCategory"`
	Type     string `json:"referenceType"`
	Locator  string `json:"referenceLocator"`
}

type relationship struct {
	Element string `json:"spdxElementId"`
	Type    string `json:"relationshipType"`
	Related string `json:"relatedSpdxElement"`
}

// sbom lists the Go modules that a program was linked from, as the linker wrote
// them down in it.
func sbom(program, path string, o options) ([]byte, error) {
	info, err := buildinfo.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("read what the program was built from: %w", err)
	}
	content, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	sum := sha256.Sum256(content)
	digest := hex.EncodeToString(sum[:])
	const root = "SPDXRef-program"
	doc := document{
		Version: "SPDX-2.3", DataLicense: "CC0-1.0", ID: "SPDXRef-DOCUMENT", Name: program,
		Namespace:    "https://crawl.example.com/spdx/" + program + "-" + digest,
		CreationInfo: creationInfo{o.created.Format(time.RFC3339), []string{"Tool: egress-proxies-images"}},
		Packages: []bomPackage{{
			ID: root, Name: info.Main.Path + "/cmd/" + program, Version: o.version, Location: "NOASSERTION",
			Checksums: []checksum{{"SHA256", digest}},
		}},
		Relationships: []relationship{{"SPDXRef-DOCUMENT", "DESCRIBES", root}},
	}
	doc.add(root, &debug.Module{Path: "stdlib", Version: strings.TrimPrefix(info.GoVersion, "go")})
	for _, m := range info.Deps {
		if m.Replace != nil {
			m = m.Replace
		}
		doc.add(root, m)
	}
	return json.MarshalIndent(doc, "", "  ")
}

func (d *document) add(root string, m *debug.Module) {
	id := fmt.Sprintf("SPDXRef-module-%d", len(d.Packages))
	d.Packages = append(d.Packages, bomPackage{
		ID: id, Name: m.Path, Version: m.Version, Location: "NOASSERTION",
		ExternalRefs: []externalRef{{"PACKAGE-MANAGER", "purl", "pkg:golang/" + m.Path + "@" + m.Version}},
	})
	d.Relationships = append(d.Relationships, relationship{root, "CONTAINS", id})
}
