package gcestandin

import (
	"net/http"
	"regexp"
	"slices"
	"strings"

	"cloud.google.com/go/compute/apiv1/computepb"
)

// Limits of Compute, for text in bytes, from the comments of computepb and
// "Requirements for labels" of the Compute documentation.
const (
	maxLabels        = 64
	maxMetadataKey   = 127
	maxMetadataValue = 262_144
	maxMetadataTotal = 512 << 10
	maxTags          = 64
)

var (
	namePattern        = regexp.MustCompile(`^[a-z]([-a-z0-9]{0,61}[a-z0-9])?$`)
	labelKeyPattern    = regexp.MustCompile(`^[a-z][a-z0-9_-]{0,62}$`)
	labelValuePattern  = regexp.MustCompile(`^[a-z0-9_-]{0,63}$`)
	metadataKeyPattern = regexp.MustCompile(`^[a-zA-Z0-9_-]+$`)
)

// checkInsert refuses what Compute refuses in the insert call itself.
func (s *Server) checkInsert(zone string, r *computepb.Instance) *apiError {
	name := r.GetName()
	if !namePattern.MatchString(name) {
		return invalid("resource.name", name, "Must be a match of regex '[a-z](?:[-a-z0-9]{0,61}[a-z0-9])?'")
	}
	for _, check := range []func(*computepb.Instance) *apiError{checkLabels, checkMetadata, checkTags, checkScheduling, s.checkMachine} {
		if bad := check(r); bad != nil {
			return bad
		}
	}
	if s.vms[place{zone, name}] != nil {
		return &apiError{http.StatusConflict, "alreadyExists", "The resource '" + s.path(place{zone, name}) + "' already exists"}
	}
	return nil
}

func checkLabels(r *computepb.Instance) *apiError {
	if len(r.GetLabels()) > maxLabels {
		return badRequest("invalid", "Too many labels: at most %d", maxLabels)
	}
	for k, v := range r.GetLabels() {
		if !labelKeyPattern.MatchString(k) {
			return invalid("resource.labels", k, "Label key is not valid.")
		}
		if !labelValuePattern.MatchString(v) {
			return invalid("resource.labels", v, "Label value is not valid.")
		}
	}
	return nil
}

func checkMetadata(r *computepb.Instance) *apiError {
	total := 0
	seen := map[string]bool{}
	for _, item := range r.GetMetadata().GetItems() {
		key, value := item.GetKey(), item.GetValue()
		total += len(key) + len(value)
		switch {
		case len(key) > maxMetadataKey || !metadataKeyPattern.MatchString(key):
			return invalid("resource.metadata.items.key", key, "Metadata key is not valid.")
		case seen[key]:
			return invalid("resource.metadata.items.key", key, "Metadata has duplicate key.")
		case len(value) > maxMetadataValue:
			return invalid("resource.metadata.items.value", value, "Value is too large: at most 262144 bytes.")
		}
		seen[key] = true
	}
	if total >= maxMetadataTotal {
		return badRequest("invalid", "Metadata is too large: %d bytes, must be less than %d", total, maxMetadataTotal)
	}
	return nil
}

func checkTags(r *computepb.Instance) *apiError {
	tags := r.GetTags().GetItems()
	if len(tags) > maxTags {
		return badRequest("invalid", "Too many tags: at most %d", maxTags)
	}
	for i, tag := range tags {
		if !namePattern.MatchString(tag) {
			return invalid("resource.tags.items", tag, "Must be a match of regex '[a-z](?:[-a-z0-9]{0,61}[a-z0-9])?'")
		}
		if slices.Contains(tags[:i], tag) {
			return invalid("resource.tags.items", tag, "Tag is duplicated.")
		}
	}
	return nil
}

func checkScheduling(r *computepb.Instance) *apiError {
	sched := r.GetScheduling()
	if sched.GetProvisioningModel() == "SPOT" && sched.GetAutomaticRestart() {
		return invalid("scheduling.automaticRestart", "true", "Spot VMs cannot restart automatically.")
	}
	if sched.GetProvisioningModel() != "SPOT" && sched.GetInstanceTerminationAction() != "" {
		return invalid("scheduling.instanceTerminationAction", sched.GetInstanceTerminationAction(), "Only Spot VMs have a termination action.")
	}
	return nil
}

// checkMachine refuses an insert without a required field.
func (s *Server) checkMachine(r *computepb.Instance) *apiError {
	if !strings.Contains(r.GetMachineType(), "machineTypes/") {
		return invalid("resource.machineType", r.GetMachineType(), "The URL is malformed.")
	}
	boot := slices.IndexFunc(r.GetDisks(), func(d *computepb.AttachedDisk) bool { return d.GetBoot() })
	if boot < 0 {
		return badRequest("required", "Invalid value for field 'resource.disks': ''. At least one disk must be specified and one must be the boot disk.")
	}
	if len(r.GetNetworkInterfaces()) == 0 {
		return badRequest("required", "Required field 'resource.networkInterfaces' not specified")
	}
	image := r.GetDisks()[boot].GetInitializeParams().GetSourceImage()
	if image == "" {
		return badRequest("required", "Required field 'resource.disks[%d].initializeParams.sourceImage' not specified", boot)
	}
	if s.opts.Images != nil && !slices.Contains(s.opts.Images, image) {
		return notFound(image)
	}
	return nil
}
