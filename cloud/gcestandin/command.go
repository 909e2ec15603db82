package gcestandin

import (
	"bytes"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"text/template"
	"time"

	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/internal/process"
)

// stopGrace is how long a VM's process may take to end by itself.
const stopGrace = 2 * time.Second

// CommandRunner runs one process per VM. Each VM has an address of its own in a
// subnet of 127/8, where Linux lets anybody listen without further set-up.
type CommandRunner struct {
	args   []*template.Template
	subnet netip.Prefix
	dir    string
	log    *slog.Logger

	mu    sync.Mutex
	procs map[place]*process.Process
	stops sync.WaitGroup
}

// commandData is what templates can use.
type commandData struct {
	VM
	// Dir is the VM's own folder.
	Dir string
	// UserData is a file with the VM's user-data.
	UserData string
	// Port is its crawl-port metadata.
	Port string
}

// NewCommandRunner returns a runner of command, which is split at white space
// before each part is expanded as a text/template over Zone, Name, ID, IP,
// Port, Labels, Metadata, Dir and UserData (a file). subnet is a /8 to /24
// within 127.0.0.0/8. Files and logs go below dir.
func NewCommandRunner(command string, subnet netip.Prefix, dir string, log *slog.Logger) (*CommandRunner, error) {
	if !netip.MustParsePrefix("127.0.0.0/8").Contains(subnet.Addr()) || subnet.Bits() < 8 || subnet.Bits() > 24 {
		return nil, fmt.Errorf("subnet %s: want a /8 to /24 within 127.0.0.0/8", subnet)
	}
	r := &CommandRunner{subnet: subnet.Masked(), dir: dir, log: log, procs: map[place]*process.Process{}}
	for _, field := range strings.Fields(command) {
		t, err := template.New("command").Option("missingkey=error").Parse(field)
		if err != nil {
			return nil, fmt.Errorf("command %q: %w", field, err)
		}
		r.args = append(r.args, t)
	}
	if len(r.args) == 0 {
		return nil, errors.New("command is empty")
	}
	if _, err := r.expand(commandData{VM: VM{Labels: map[string]string{}, Metadata: map[string]string{}}}); err != nil {
		return nil, err
	}
	return r, nil
}

// Address returns the nth usable address of the subnet, beginning anew when all
// were given.
func (r *CommandRunner) Address(n int) string {
	usable := 1<<(32-r.subnet.Bits()) - 2
	a := r.subnet.Addr().As4()
	offset := uint32(a[0])<<24 | uint32(a[1])<<16 | uint32(a[2])<<8 | uint32(a[3])
	offset += uint32((n-1)%usable + 1)
	return netip.AddrFrom4([4]byte{byte(offset >> 24), byte(offset >> 16), byte(offset >> 8), byte(offset)}).String()
}

// Start writes the VM's user data and starts its process.
func (r *CommandRunner) Start(vm VM) error {
	data := commandData{VM: vm, Dir: filepath.Join(r.dir, vm.Name+"-"+vm.ID), Port: vm.Metadata["crawl-port"]}
	data.UserData = filepath.Join(data.Dir, "user-data")
	args, err := r.expand(data)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(data.Dir, 0o755); err != nil {
		return fmt.Errorf("folder of VM %s: %w", vm.Name, err)
	}
	if err := os.WriteFile(data.UserData, []byte(vm.Metadata["user-data"]), 0o600); err != nil {
		return fmt.Errorf("user data of VM %s: %w", vm.Name, err)
	}
	p, err := process.Start(process.Command{
		Name: vm.Name, Path: args[0], Args: args[1:], Dir: data.Dir, LogFile: filepath.Join(data.Dir, "log"),
	})
	if err != nil {
		return err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.procs[place{vm.Zone, vm.Name}] = p
	r.log.Info("VM's process started", "vm", vm.Name, "zone", vm.Zone, "ip", vm.IP, "pid", p.PID())
	return nil
}

// Stop ends the VM's process in the background.
func (r *CommandRunner) Stop(zone, name string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	p := r.procs[place{zone, name}]
	if p == nil {
		return
	}
	delete(r.procs, place{zone, name})
	r.stops.Go(func() {
		if err := p.Stop(stopGrace); err != nil {
			r.log.Error("stop of a VM's process failed", "vm", name, "err", err)
		}
	})
}

// Wait returns when every process that was told to stop has stopped.
func (r *CommandRunner) Wait() { r.stops.Wait() }

func (r *CommandRunner) expand(data commandData) ([]string, error) {
	args := make([]string, 0, len(r.args))
	for _, t := range r.args {
		var out bytes.Buffer
		if err := t.Execute(&out, data); err != nil {
			return nil, fmt.Errorf("command: %w", err)
		}
		args = append(args, out.String())
	}
	return args, nil
}
