package fleet

import (
	"testing"

	"go.uber.org/goleak"

	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/stack/controlplane/controlplanetest"
)

var shared controlplanetest.Shared

func TestMain(m *testing.M) { goleak.VerifyTestMain(shared.Main(m)) }
