// Package manifests_test holds the manifests of this folder to what our
// processes do and to what a real API server says about them.
package manifests_test

import (
	"fmt"
	"os"
	"testing"

	"go.uber.org/goleak"

	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/stack/controlplane/controlplanetest"
)

// shared is the API server of this package's tests.
var shared controlplanetest.Shared

// removeAtEnd are folders that outlive the test that made them.
var removeAtEnd []string

func TestMain(m *testing.M) {
	code := m.Run()
	for _, dir := range removeAtEnd {
		_ = os.RemoveAll(dir)
	}
	if err := shared.Stop(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	if err := goleak.Find(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	os.Exit(code)
}
