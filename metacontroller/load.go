package metacontroller

import (
	_ "embed"
	"errors"
	"fmt"
	"maps"
	"net/url"
	"os"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/yaml"
)

// ErrBadController: the manifest is not a CompositeController that we can run.
var ErrBadController = errors.New("bad CompositeController")

// Names of the hooks and last elements of their URLs.
const (
	HookCustomize = "customize"
	HookSync      = "sync"
	HookFinalize  = "finalize"
)

// LoadController reads the CompositeController in the YAML file at path. Unknown
// and duplicate fields and invalid values are errors that unwrap to
// ErrBadController and name the field.
func LoadController(path string) (*Controller, error) {
	b, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("read CompositeController: %w", err)
	}
	c, err := ParseController(b)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return c, nil
}

// ParseController is LoadController for a manifest in memory.
func ParseController(manifest []byte) (*Controller, error) {
	var c Controller
	if err := yaml.UnmarshalStrict(manifest, &c); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrBadController, err)
	}
	if err := c.validate(); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrBadController, err)
	}
	return &c, nil
}

//go:embed compositecontroller.yaml
var controllerManifest []byte

// DefaultController returns the CompositeController of this release, with the hook
// URLs of a cluster. It fails only if the embedded manifest is invalid.
func DefaultController() (*Controller, error) {
	c, err := ParseController(controllerManifest)
	if err != nil {
		return nil, fmt.Errorf("embedded CompositeController: %w", err)
	}
	return c, nil
}

// SetHookBaseURL sets the URL of every hook of c to base + "/" + the hook's name.
// base is absolute, such as http://127.0.0.1:8080/hooks; a trailing slash is
// ignored.
func (c *Controller) SetHookBaseURL(base string) error {
	if err := checkURL(base); err != nil {
		return fmt.Errorf("hook base URL: %w", err)
	}
	for name, hook := range c.hooks() {
		hook.Webhook.URL = strings.TrimRight(base, "/") + "/" + name
	}
	return nil
}

// WriteFile writes c as YAML to path, for `kubectl apply` or LoadController.
func (c *Controller) WriteFile(path string) error {
	b, err := yaml.Marshal(c)
	if err != nil {
		return fmt.Errorf("encode CompositeController: %w", err)
	}
	if err := os.WriteFile(path, b, 0o644); err != nil {
		return fmt.Errorf("write CompositeController: %w", err)
	}
	return nil
}

// hooks returns the hooks that are set, by name.
func (c *Controller) hooks() map[string]*Hook {
	all := map[string]*Hook{HookCustomize: c.Spec.Hooks.Customize, HookSync: c.Spec.Hooks.Sync, HookFinalize: c.Spec.Hooks.Finalize}
	maps.DeleteFunc(all, func(_ string, hook *Hook) bool { return hook == nil })
	return all
}

// validate returns all errors of c, each with its field.
func (c *Controller) validate() error {
	var errs []error
	bad := func(field, format string, args ...any) { errs = append(errs, fmt.Errorf(field+": "+format, args...)) }
	if c.APIVersion != ControllerAPIVersion || c.Kind != ControllerKind {
		bad("apiVersion, kind", "is %q %q, want %s %s", c.APIVersion, c.Kind, ControllerAPIVersion, ControllerKind)
	}
	if c.Name == "" {
		bad("metadata.name", "is missing; parents' finalizers embed it")
	}
	if period := c.Spec.ResyncPeriodSeconds; period != nil && *period < 1 {
		bad("spec.resyncPeriodSeconds", "is %d, want at least 1 or leave it out", *period)
	}
	if !Enabled(c.Spec.GenerateSelector) {
		bad("spec.generateSelector", "want true: our parents have no selector in their spec")
	}
	c.validateResources(bad)
	c.validateHooks(bad)
	return errors.Join(errs...)
}

func (c *Controller) validateResources(bad func(field, format string, args ...any)) {
	resource := func(field string, r ResourceRef) {
		if _, err := schema.ParseGroupVersion(r.APIVersion); err != nil || r.APIVersion == "" || r.Resource == "" {
			bad(field, "apiVersion %q and resource %q must name a resource, such as v1 and pods", r.APIVersion, r.Resource)
		}
	}
	resource("spec.parentResource", c.Spec.ParentResource.ResourceRef)
	seen := map[ResourceRef]bool{}
	for i, child := range c.Spec.ChildResources {
		field := fmt.Sprintf("spec.childResources[%d]", i)
		resource(field, child.ResourceRef)
		if seen[child.ResourceRef] {
			bad(field, "%s %s is listed twice", child.APIVersion, child.Resource)
		}
		seen[child.ResourceRef] = true
		if method := child.UpdateStrategy.Method; method != OnDelete && method != InPlace {
			bad(field+".updateStrategy.method", "is %q, want OnDelete or InPlace: the other methods loop on Pods or never finish for namespaced parents", method)
		}
	}
}

func (c *Controller) validateHooks(bad func(field, format string, args ...any)) {
	if c.Spec.Hooks.Sync == nil {
		bad("spec.hooks.sync", "is missing")
	}
	hooks := c.hooks()
	for _, name := range slices.Sorted(maps.Keys(hooks)) {
		hook, field := hooks[name], "spec.hooks."+name
		if hook.Version != HookVersion {
			bad(field+".version", "is %q, want %s; Metacontroller takes v1 when it is left out", hook.Version, HookVersion)
		}
		if err := checkURL(hook.Webhook.URL); err != nil {
			bad(field+".webhook.url", "%w", err)
		}
		if t := hook.Webhook.Timeout; t != nil && t.Duration < time.Millisecond {
			bad(field+".webhook.timeout", "is %s, want more than nothing or leave it out for 10s", t.Duration)
		}
	}
}

func checkURL(s string) error {
	u, err := url.Parse(s)
	if err != nil || (u.Scheme != "http" && u.Scheme != "https") || u.Host == "" {
		return fmt.Errorf("is %q, want an absolute http or https URL", s)
	}
	return nil
}
