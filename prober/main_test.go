package prober

import (
	"errors"
	"fmt"
	"os"
	"testing"

	"go.uber.org/goleak"

	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/stack/controlplane/controlplanetest"
)

// shared is the API server of the tests that need a real one.
var shared controlplanetest.Shared

func TestMain(m *testing.M) {
	code := m.Run()
	err := errors.Join(shared.Stop(), goleak.Find())
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		code = max(code, 1)
	}
	os.Exit(code)
}
