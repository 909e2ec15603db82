package v1alpha1

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"
)

const (
	// specHashPrefix is the version of the algorithm. A hash with another prefix is
	// another release's and cannot be compared.
	specHashPrefix = "v1-"
	// specHashDigits follow the prefix, of the digest's 64.
	specHashDigits = 40
)

// hashedSpec is the hash input. Fields are in alphabetical order of their JSON
// names and zero values are omitted, so that a field added later does not change
// existing hashes.
type hashedSpec struct {
	CloudInit string `json:"cloudInit,omitempty"`
	// CloudInitBytes is user data that is not UTF-8, such as gzip. As a JSON string
	// different data could have the same hash.
	CloudInitBytes []byte     `json:"cloudInitBytes,omitempty"`
	Placement      *Placement `json:"placement,omitempty"`
	Port           int32      `json:"port,omitempty"`
}

// SpecHash is the hash of the fields whose change replaces an instance: placement,
// the resolved user data and the port. It is "v1-" and the first 40 hex characters
// of SHA-256 over canonical JSON (sorted keys, zero values omitted), and is a valid
// annotation and GCE label.
func SpecHash(placement *Placement, cloudInit string, port int32) string {
	in := hashedSpec{Placement: placement.forHash(), Port: port}
	if utf8.ValidString(cloudInit) {
		in.CloudInit = cloudInit
	} else {
		in.CloudInitBytes = []byte(cloudInit)
	}
	sum := sha256.Sum256(canonicalJSON(in))
	return specHashPrefix + hex.EncodeToString(sum[:])[:specHashDigits]
}

// forHash returns the placement with its set sorted, or nil if no field is set. An
// empty list counts as not set.
func (p *Placement) forHash() *Placement {
	out := p.DeepCopy()
	if out == nil {
		return nil
	}
	slices.Sort(out.NetworkTags)
	if encoded, err := json.Marshal(out); err == nil && string(encoded) == "{}" {
		return nil
	}
	return out
}

// canonicalJSON encodes v with object keys sorted at every level: encoding sorts
// the keys of maps, but not the fields of structs.
func canonicalJSON(v any) []byte {
	first, err := json.Marshal(v)
	if err != nil {
		panic(fmt.Sprintf("spec hash input is not JSON: %v", err)) // strings and numbers only
	}
	var generic map[string]any
	if err := json.Unmarshal(first, &generic); err != nil {
		panic(fmt.Sprintf("spec hash input is not a JSON object: %v", err))
	}
	sorted, err := json.Marshal(generic)
	if err != nil {
		panic(fmt.Sprintf("spec hash input is not JSON: %v", err))
	}
	return sorted
}

// SpecHashKnown reports whether hash has the format of SpecHash and can be
// compared. An instance with any other hash, or without one, is adopted and never
// replaced.
func SpecHashKnown(hash string) bool {
	digits, ok := strings.CutPrefix(hash, specHashPrefix)
	return ok && len(digits) == specHashDigits && strings.Trim(digits, "0123456789abcdef") == ""
}
