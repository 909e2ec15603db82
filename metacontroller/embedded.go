package metacontroller

import (
	_ "embed"
	"fmt"
)

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
