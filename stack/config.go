package stack

import (
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os/exec"
	"path/filepath"

	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/stack/controlplane"
)

// Config says how a stack is run.
type Config struct {
	// Home is the folder in which every stack has one of its own; "" means one
	// of this user's in the system's folder for temporary files.
	Home string
	// BinDir is where our programs are.
	BinDir string
	// Squid is what serves as proxy in Pods: auto, builtin or a path.
	Squid string
	// Assets are the programs of the control plane.
	Assets controlplane.Assets
	// Log receives what the parts in this process have to say.
	Log *slog.Logger
	// Progress receives a line per part that has come up, for people.
	Progress io.Writer
}

// programs are the executables that a stack runs, beside the control plane's.
func programs() []string {
	return []string{programWebhooks, programEngine, programProber, programDiscovery, programNode, programConnectProxy}
}

const (
	programWebhooks     = "webhooks"
	programEngine       = "engine"
	programProber       = "prober"
	programDiscovery    = "discovery"
	programNode         = "node"
	programConnectProxy = "connectproxy"
)

// validate returns everything that is missing.
func (c *Config) validate() error {
	var errs []error
	for _, name := range programs() {
		if _, err := exec.LookPath(c.program(name)); err != nil {
			errs = append(errs, fmt.Errorf("program %s: %w; run `make build`", name, err))
		}
	}
	return errors.Join(errs...)
}

// program is the path of one of ours.
func (c *Config) program(name string) string { return filepath.Join(c.BinDir, name) }
