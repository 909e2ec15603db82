package metacontroller

import (
	_ "embed"
	"errors"
	"fmt"
	"net/url"
	"os"
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
	for name, hook := range all {
		if hook == nil {
			delete(all, name)
		}
	}
	return all
}

// validate returns all errors of c, each with its field.
func (c *Controller) validate() error {
	var errs []error
	bad := func(field, format string, args ...any) {
		errs = append(errs, fmt.Errorf("%s: %s", field, fmt.Sprintf(format, args...)))
	}
	if c.APIVersion != ControllerAPIVersion || c.Kind != ControllerKind {
		bad("apiVersion, kind", "is %q %q, want %s %s", c.APIVersion, c.Kind, ControllerAPIVersion, ControllerKind)
	}
	if c.Name == "" {
		bad("metadata.name", "is missing; parents' finalizers embed it")
	}
	errs = append(errs, c.Spec.ParentResource.validate("spec.parentResource"))
	if period := c.Spec.ResyncPeriodSeconds; period != nil && *period < 1 {
		bad("spec.resyncPeriodSeconds", "is %d, want at least 1 or leave it out", *period)
	}
	if !Enabled(c.Spec.GenerateSelector) {
		bad("spec.generateSelector", "want true: our parents have no selector in their spec")
	}
	errs = append(errs, c.validateChildren(), c.validateHooks())
	return errors.Join(errs...)
}

func (c *Controller) validateChildren() error {
	var errs []error
	seen := map[ResourceRef]bool{}
	for i, child := range c.Spec.ChildResources {
		field := fmt.Sprintf("spec.childResources[%d]", i)
		errs = append(errs, child.validate(field))
		if seen[child.ResourceRef] {
			errs = append(errs, fmt.Errorf("%s: %s %s is listed twice", field, child.APIVersion, child.Resource))
		}
		seen[child.ResourceRef] = true
		switch child.UpdateStrategy.Method {
		case OnDelete, InPlace:
		default:
			errs = append(errs, fmt.Errorf("%s.updateStrategy.method: is %q, want OnDelete or InPlace: the other methods loop on Pods or never finish for namespaced parents", field, child.UpdateStrategy.Method))
		}
	}
	return errors.Join(errs...)
}

func (c *Controller) validateHooks() error {
	var errs []error
	if c.Spec.Hooks.Sync == nil {
		errs = append(errs, errors.New("spec.hooks.sync: is missing"))
	}
	for _, name := range []string{HookCustomize, HookSync, HookFinalize} {
		hook, found := c.hooks()[name]
		if !found {
			continue
		}
		field := "spec.hooks." + name
		if hook.Version != HookVersion {
			errs = append(errs, fmt.Errorf("%s.version: is %q, want %s; Metacontroller takes v1 when it is left out", field, hook.Version, HookVersion))
		}
		if err := checkURL(hook.Webhook.URL); err != nil {
			errs = append(errs, fmt.Errorf("%s.webhook.url: %w", field, err))
		}
		if t := hook.Webhook.Timeout; t != nil && t.Duration < time.Millisecond {
			errs = append(errs, fmt.Errorf("%s.webhook.timeout: is %s, want more than nothing or leave it out for 10s", field, t.Duration))
		}
	}
	return errors.Join(errs...)
}

func (r ResourceRef) validate(field string) error {
	if _, err := schema.ParseGroupVersion(r.APIVersion); err != nil || r.APIVersion == "" || r.Resource == "" {
		return fmt.Errorf("%s: apiVersion %q and resource %q must name a resource, such as v1 and pods", field, r.APIVersion, r.Resource)
	}
	return nil
}

func checkURL(s string) error {
	u, err := url.Parse(s)
	if err != nil || (u.Scheme != "http" && u.Scheme != "https") || u.Host == "" {
		return fmt.Errorf("is %q, want an absolute http or https URL", s)
	}
	return nil
}
