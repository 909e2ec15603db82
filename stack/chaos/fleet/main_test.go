package fleet

import (
	"log"
	"os"
	"testing"

	"go.uber.org/goleak"

	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/stack/controlplane/controlplanetest"
)

var shared controlplanetest.Shared

func TestMain(m *testing.M) {
	code := m.Run()
	if err := shared.Stop(); err != nil {
		log.Print(err)
		code = 1
	}
	if err := goleak.Find(); code == 0 && err != nil {
		log.Print(err)
		code = 1
	}
	os.Exit(code)
}
