package standin

import (
	"testing"

	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/stack/controlplane"
)

// SharedControlPlane is the API server of all end-to-end tests of this folder.
func SharedControlPlane(t testing.TB) *controlplane.ControlPlane { return shared.Get(t) }
