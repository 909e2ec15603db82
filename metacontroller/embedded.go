package metacontroller

import (
	_ "embed"
	"fmt"
)

//go:embed compositecontroller.yaml
var controllerManifest []byte

// DefaultController returns the CompositeController that this release ships,
// with the hook URLs of a cluster. It fails only when this program was built
// wrongly.
func DefaultController() (*Controller, error) {
	c, err := ParseController(controllerManifest)
	if err != nil {
		return nil, fmt.Errorf("embedded CompositeController: %w", err)
	}
	return c, nil
}
