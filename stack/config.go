package stack

import (
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os/exec"
	"path/filepath"
	"time"

	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/stack/controlplane"
	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/stack/upstream"
)

// Config configures a stack.
type Config struct {
	// Home is the folder in which every stack has a folder of its own; "" is a folder of this user
	// in the system's folder for temporary files.
	Home   string
	BinDir string // where our programs are
	Squid  string // the proxy of Pods: auto, builtin or a path
	// Metacontroller is the path of the real one's binary; "" runs the
	// stand-in.
	Metacontroller   string
	ApplyStrategy    upstream.Strategy // the real one's; the stand-in supports only dynamic apply
	CloudInitSecrets bool              // lets Proxies take cloud-init from labelled Secrets
	Discoveries      []Discovery       // the discovery processes; none means one with an in-memory store
	// ResyncPeriod is the resync period of every Proxy, in whole seconds; 0 keeps the one of the
	// manifest.
	ResyncPeriod time.Duration
	// HookRelay receives the hooks' host:port and returns the host:port that the driver calls
	// instead; nil lets it call them directly.
	HookRelay func(hooks string) (string, error)
	// Flags are added to those of a program, by its name. The last one of a repeated flag counts.
	Flags map[string][]string
	// Ended, if any, is called when a program of ours exits by itself; the program is then
	// restarted, as by a kubelet. nil makes such an exit a failure of the stack.
	Ended    func(name string, err error)
	Assets   controlplane.Assets // the programs of the control plane
	Log      *slog.Logger        // receives the logs of the parts in this process
	Progress io.Writer           // receives a line per part that is ready
}

// Discovery is one discovery process.
type Discovery struct {
	Name       string // among the programs of the stack, such as discovery
	LeaseStore string // its --lease-store
}

// discoveries are the discovery processes, with the default.
func (c *Config) discoveries() []Discovery {
	if len(c.Discoveries) == 0 {
		return []Discovery{{Name: programDiscovery, LeaseStore: "memory"}}
	}
	return c.Discoveries
}

// programs are our executables that the stack runs.
func (c *Config) programs() []string {
	names := []string{programWebhooks, programProber, programDiscovery, programNode, programConnectProxy, programCloud, programCloudEngine}
	if c.Metacontroller == "" {
		names = append(names, ProgramStandIn)
	}
	return names
}

const (
	programWebhooks = "webhooks"
	// ProgramStandIn is the binary that runs in Metacontroller's place.
	ProgramStandIn      = "metacontroller-standin"
	programProber       = "prober"
	programDiscovery    = "discovery"
	programNode         = "node"
	programConnectProxy = "connectproxy"
	programCloud        = "cloud"
	programCloudEngine  = "gcestandin"
)

// validate lists everything that is missing.
func (c *Config) validate() error {
	var errs []error
	for _, name := range c.programs() {
		if _, err := exec.LookPath(c.program(name)); err != nil {
			errs = append(errs, fmt.Errorf("program %s: %w; run `make build`", name, err))
		}
	}
	return errors.Join(append(errs, c.findMetacontroller())...)
}

// findMetacontroller makes the path of Metacontroller absolute.
func (c *Config) findMetacontroller() error {
	switch {
	case c.Metacontroller != "":
		path, err := upstream.Find(c.Metacontroller)
		c.Metacontroller = path
		return err
	case c.ApplyStrategy == upstream.ServerSideApply:
		return fmt.Errorf("apply strategy %s: the stand-in supports only %s; name the real Metacontroller's binary", c.ApplyStrategy, upstream.DynamicApply)
	}
	return nil
}

// program is the path of one of ours.
func (c *Config) program(name string) string { return filepath.Join(c.BinDir, name) }
