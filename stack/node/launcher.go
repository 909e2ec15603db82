package node

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/user"
	"strconv"
	"syscall"

	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/internal/process"
)

// Values of --squid besides a path.
const (
	SquidAuto    = "auto"
	SquidBuiltin = "builtin"
)

// Launcher starts the program that serves as proxy.
type Launcher struct {
	Name       string              // in messages: squid or the built-in proxy
	Path       string              // of the executable, absolute
	Builtin    bool                // true for the built-in proxy, false for squid
	Credential *syscall.Credential // the user of the process, nil for our own
}

// FindLauncher returns the launcher for --squid and --connect-proxy: squid at a path, the built-in
// proxy, or (auto) squid if it is installed and the built-in proxy otherwise. Its errors name the
// flag.
func FindLauncher(squid, connectProxy string) (*Launcher, error) {
	switch squid {
	case SquidBuiltin:
		return builtin(connectProxy)
	case SquidAuto:
		if path := installedSquid(); path != "" {
			return squidAt(path)
		}
		return builtin(connectProxy)
	}
	path, err := exec.LookPath(squid)
	if err != nil {
		return nil, fmt.Errorf("--squid %s: %w; give the path of squid, %s or %s", squid, err, SquidAuto, SquidBuiltin)
	}
	return squidAt(path)
}

// installedSquid searches /usr/sbin too, which is not in the PATH of ordinary users.
func installedSquid() string {
	for _, name := range []string{"squid", "/usr/sbin/squid", "/usr/local/sbin/squid"} {
		if path, err := exec.LookPath(name); err == nil {
			return path
		}
	}
	return ""
}

func squidAt(path string) (*Launcher, error) {
	l := &Launcher{Name: "squid", Path: path}
	if os.Geteuid() != 0 {
		return l, nil
	}
	var err error
	l.Credential, err = unprivileged("proxy", "nobody")
	return l, err
}

func builtin(path string) (*Launcher, error) {
	resolved, err := exec.LookPath(path)
	if err != nil {
		return nil, fmt.Errorf("--connect-proxy %q: %w; build it with make build", path, err)
	}
	return &Launcher{Name: "built-in proxy", Path: resolved, Builtin: true}, nil
}

// unprivileged returns the first user that exists.
func unprivileged(names ...string) (*syscall.Credential, error) {
	var errs []error
	for _, name := range names {
		u, err := user.Lookup(name)
		if err != nil {
			errs = append(errs, err)
			continue
		}
		uid, errUID := strconv.ParseUint(u.Uid, 10, 32)
		gid, errGID := strconv.ParseUint(u.Gid, 10, 32)
		if err := errors.Join(errUID, errGID); err != nil {
			return nil, fmt.Errorf("user %s: %w", name, err)
		}
		return &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}, nil
	}
	return nil, fmt.Errorf("squid must not run as root and no other user was found: %w", errors.Join(errs...))
}

// start starts the program on the Pod's folder, which is prepared. config is the adapted one in it.
func (l *Launcher) start(dir podDir, config string) (*process.Process, error) {
	args, err := l.args(dir, config)
	if err != nil {
		return nil, err
	}
	return process.Start(process.Command{
		Name:       l.Name,
		Path:       l.Path,
		Args:       args,
		Env:        []string{"PATH=" + os.Getenv("PATH")}, // none of our PX_ variables
		Dir:        dir.run(),
		LogFile:    dir.output(),
		Credential: l.Credential,
	})
}

func (l *Launcher) args(dir podDir, config string) ([]string, error) {
	if l.Builtin {
		return proxyFlags(config)
	}
	return []string{"-N", "-n", dir.service(), "-f", dir.config()}, nil
}
