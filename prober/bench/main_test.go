// Package bench measures the prober as a process: the CPU time of a probe beside
// that of blackbox_exporter and of a bare loop, how late probes start, and the
// memory of ten thousand proxies.
//
// Whatever is not measured runs in other processes: the rig (proxies, targets
// and a stand-in for the API server) and the peers. The counts are the rig's,
// which also sees whether a probe was a full, fresh one.
package bench

import (
	"fmt"
	"os"
	"testing"

	"go.uber.org/goleak"
)

// roleEnv turns the test binary into another of the processes.
const roleEnv = "PX_BENCH_ROLE"

func TestMain(m *testing.M) {
	var err error
	switch role := os.Getenv(roleEnv); role {
	case "":
		goleak.VerifyTestMain(m) // and no further
	case "rig":
		err = runRig(os.Getenv(dirEnv))
	case "floor":
		err = runFloor(os.Getenv(dirEnv))
	default:
		err = fmt.Errorf("unknown role %q", role)
	}
	fmt.Fprintln(os.Stderr, err)
	os.Exit(1)
}
