package controlplane

import (
	"errors"
	"fmt"
	"log/slog"
	"net"
	"path/filepath"
)

// Config says where a control plane runs.
type Config struct {
	// Dir is its folder, made when it is not there. It holds the data, keys,
	// logs and the kubeconfig, readable for the owner alone. The data that an
	// earlier control plane left there is used again.
	Dir string
	// Addr is the loopback IP that everything listens on, such as 127.41.7.1,
	// on ports that are free there.
	Addr string
	// Assets are the programs. Empty means those that Locate finds.
	Assets Assets
	// Durable makes etcd wait for the disk on every write, as in production.
	// Without it starts and writes are faster, and a power cut, though not a
	// killed process, can lose data.
	Durable bool
	// Log receives what people want to know about starts and ends.
	Log *slog.Logger
}

// validate returns everything that is wrong.
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
