package gcestandin

import (
	"bytes"
	"context"
	"encoding/binary"
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

// Runner runs VMs while they are RUNNING. Its methods are called under the server's
// lock: they must not call the server, and must not block.
type Runner interface {
	// Address returns the external address of the nth VM, n from 1.
	Address(n int) string
	// Start starts a VM. The error is logged; the VM stays RUNNING, as a real one does
	// whose software fails.
	Start(VM) error
	// Stop stops a VM, if it still runs.
	Stop(zone, name string)
}

// Run starts and stops VMs as time passes, and stops all of them when ctx ends. It is
// needed only with a Runner.
func (s *Server) Run(ctx context.Context) {
	ticker := time.NewTicker(100 * time.Millisecond)
	defer ticker.Stop()
	for ctx.Err() == nil {
		s.VMs() // advances
		select {
		case <-ctx.Done():
		case <-ticker.C:
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, v := range s.vms {
		s.stop(v)
	}
}

// stopGrace is the timeout of a VM's process after SIGTERM.
const stopGrace = 2 * time.Second

// CommandRunner runs one process per VM. Each VM has its own address in a subnet of
// 127/8, on which Linux lets any process listen.
type CommandRunner struct {
	args   []*template.Template
	subnet netip.Prefix
	dir    string
	log    *slog.Logger

	mu    sync.Mutex
	procs map[place]*process.Process
	stops sync.WaitGroup
}

// commandData are the fields of the templates.
type commandData struct {
	VM
	Dir      string // the VM's own folder
	UserData string // a file with the VM's user-data
	Port     string // its crawl-port metadata
}

// NewCommandRunner returns a runner of command. Each of its words is a text/template
// over Zone, Name, ID, IP, Port, Labels, Metadata, Dir and UserData (a file). subnet
// is a /8 to /24 within 127.0.0.0/8. Files and logs are below dir.
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

// Address returns the nth usable address of the subnet, and starts again from the
// first after the last.
func (r *CommandRunner) Address(n int) string {
	usable := 1<<(32-r.subnet.Bits()) - 2
	a := r.subnet.Addr().As4()
	binary.BigEndian.PutUint32(a[:], binary.BigEndian.Uint32(a[:])+uint32((n-1)%usable+1))
	return netip.AddrFrom4(a).String()
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

// Stop stops the VM's process in the background.
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

// Wait returns when every stopped process has ended.
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
