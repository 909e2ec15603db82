package programtest

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
)

// SourcesEnv names an environment variable that changes with every source of
// ours. `make` sets it, so that Go's test cache can tell when a program that a
// test builds and runs has changed: it looks at what a test reads, variables of
// the environment among it, and not at what the compiler reads.
const SourcesEnv = "PX_SOURCES"

// Build builds programs of ours into the folder dir. args are packages, and flags
// of go build in front of them.
func Build(dir string, args ...string) error {
	_ = os.Getenv(SourcesEnv)
	cmd := exec.Command("go", append([]string{"build", "-o", filepath.Clean(dir) + "/"}, args...)...)
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("go build %v: %w\n%s", args, err, out)
	}
	return nil
}
