// Package upstreamtest gives tests the real Metacontroller.
package upstreamtest

import (
	"os"
	"testing"

	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/stack/upstream"
)

// Program returns the path of the real Metacontroller's binary, and skips the
// test when METACONTROLLER is not set.
func Program(t testing.TB) string {
	t.Helper()
	name := os.Getenv(upstream.ProgramEnv)
	if name == "" {
		t.Skipf("needs the real Metacontroller: %s names no binary; build Metacontroller 4.17.2 to run this", upstream.ProgramEnv)
	}
	path, err := upstream.Find(name)
	if err != nil {
		t.Fatal(err)
	}
	return path
}
