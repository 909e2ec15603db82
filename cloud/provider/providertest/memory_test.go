package providertest

import (
	"testing"

	"go.uber.org/goleak"

	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/api/v1alpha1"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestMemoryKeepsTheContract(t *testing.T) {
	Run(t, func(*testing.T) Rig {
		return Rig{Cloud: NewMemory(Installation), Placement: v1alpha1.Placement{Zone: "somewhere"}}
	})
}
