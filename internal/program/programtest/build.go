package programtest

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
)

// SourcesEnv names an environment variable that changes with every source file of ours. `make` sets it: Go's test cache
// looks at the files and variables that a test reads, not at what the compiler reads, and would miss that a program
// which the test builds has changed.
const SourcesEnv = "PX_SOURCES"

// Build builds programs of ours into the folder dir. args are packages, and flags of go build in front of them. The flags
// are those of the Makefile, so that both use the same cached packages: static programs, or with -race those of the tests.
func Build(dir string, args ...string) error {
	_ = os.Getenv(SourcesEnv)
	cgo := "0"
	if slices.Contains(args, "-race") {
		cgo = "1" // the race detector needs it
	}
	cmd := exec.Command("go", append([]string{"build", "-trimpath", "-o", filepath.Clean(dir) + "/"}, args...)...)
	cmd.Env = append(os.Environ(), "CGO_ENABLED="+cgo)
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("go build %v: %w\n%s", args, err, out)
	}
	return nil
}
