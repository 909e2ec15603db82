package controlplane

import (
	"errors"
	"fmt"
	"log/slog"
	"net"
	"path/filepath"
)

// Config configures a control plane.
type Config struct {
	// Dir is its folder, created if missing, for data, keys, logs and the kubeconfig, readable for
	// the owner only. The data of an earlier control plane there is reused.
	Dir string
	// Addr is the loopback IP that everything listens on, such as 127.41.7.1,
	// on ports that are free there.
	Addr string
	// Assets are the programs. Empty means those that Locate finds.
	Assets Assets
	// Durable makes etcd sync every write to disk, as in production. Without it starts and writes
	// are faster, and a power cut, though not a killed process, can lose data.
	Durable bool
	// Log receives starts and exits.
	Log *slog.Logger
}

// validate lists everything that is wrong.
func (c Config) validate() error {
	var errs []error
	if !filepath.IsAbs(c.Dir) {
		errs = append(errs, fmt.Errorf("folder %q: want an absolute path", c.Dir))
	}
	if ip := net.ParseIP(c.Addr); ip == nil || !ip.IsLoopback() {
		errs = append(errs, fmt.Errorf("address %q: want a loopback IP such as 127.41.7.1; the control plane must not be reachable from other machines", c.Addr))
	}
	if c.Log == nil {
		errs = append(errs, errors.New("no logger"))
	}
	return errors.Join(errs...)
}
