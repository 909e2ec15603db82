// Package process runs child processes that die with this process, also after SIGKILL,
// and whose exit errors name the log. It needs Linux.
package process

import (
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"syscall"
	"time"
)

// killWait is the timeout for an exit after SIGKILL. Only a process that hangs in the
// kernel takes long.
const killWait = 10 * time.Second

// Command is a program to start.
type Command struct {
	// Name for logs and errors, such as "etcd".
	Name string
	// Path of the executable, absolute or found through PATH.
	Path string
	// Args without the program's own name.
	Args []string
	// Env is the whole environment; nil means ours.
	Env []string
	// Dir is the working directory; "" means ours.
	Dir string
	// LogFile is appended to. It is created with mode 0600.
	LogFile string
	// Credential to run under; nil means our own. It becomes the owner of LogFile, since
	// programs that log to /dev/stdout reopen the file.
	Credential *syscall.Credential
}

// Process is one started child. All methods may be called at any time and from
// any goroutine.
type Process struct {
	name     string
	log      logFile
	cmd      *exec.Cmd
	finished chan struct{}
	exit     error // set before finished is closed
}

// Start starts the command in its own process group, so that a Ctrl-C at the terminal
// reaches only us and we stop our children in order. The child gets SIGKILL when we die,
// also from SIGKILL.
func Start(c Command) (*Process, error) {
	if _, err := os.Stat(c.Dir); c.Dir != "" && err != nil {
		return nil, fmt.Errorf("start %s: working directory: %w", c.Name, err) // exec would blame the program
	}
	out, err := os.OpenFile(c.LogFile, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, fmt.Errorf("start %s: open its log: %w", c.Name, err)
	}
	defer out.Close() // the child has its own copy
	offset, err := prepareLog(out, c.Credential)
	if err != nil {
		return nil, fmt.Errorf("start %s: %w", c.Name, err)
	}
	p := &Process{
		name:     c.Name,
		log:      logFile{path: c.LogFile, offset: offset},
		cmd:      c.build(out),
		finished: make(chan struct{}),
	}
	started := make(chan error, 1)
	go p.run(started)
	if err := <-started; err != nil {
		return nil, fmt.Errorf("start %s: %w", c.Name, err)
	}
	return p, nil
}

func (c Command) build(out *os.File) *exec.Cmd {
	cmd := exec.Command(c.Path, c.Args...)
	cmd.Env, cmd.Dir = c.Env, c.Dir
	cmd.Stdout, cmd.Stderr = out, out
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Setpgid:    true,
		Pdeathsig:  syscall.SIGKILL,
		Credential: c.Credential,
	}
	return cmd
}

// prepareLog returns the offset at which the output of the child starts.
func prepareLog(out *os.File, owner *syscall.Credential) (int64, error) {
	if owner != nil {
		if err := out.Chown(int(owner.Uid), int(owner.Gid)); err != nil {
			return 0, fmt.Errorf("hand over its log: %w", err)
		}
	}
	return out.Seek(0, io.SeekEnd)
}

// run starts the child and waits for it on its own OS thread. The kernel sends the
// parent-death signal when the forking thread exits, not the process (prctl(2),
// PR_SET_PDEATHSIG), and the Go runtime ends threads at any time.
func (p *Process) run(started chan<- error) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	err := p.cmd.Start()
	started <- err
	if err != nil {
		return
	}
	if err := p.cmd.Wait(); err != nil {
		p.exit = &ExitError{Name: p.name, PID: p.PID(), LogFile: p.log.path, Tail: p.log.tail(), Cause: err}
	}
	close(p.finished)
}

// PID is the child's process id. It is not reused while Done is open.
func (p *Process) PID() int { return p.cmd.Process.Pid }

// Done is closed when the child has exited and been reaped.
func (p *Process) Done() <-chan struct{} { return p.finished }

// Wait blocks until the child has exited. It returns nil when it exited with
// status 0, an *ExitError otherwise.
func (p *Process) Wait() error {
	<-p.finished
	return p.exit
}

// LogTail returns the last lines that this child wrote, "" when there are none.
func (p *Process) LogTail() string { return p.log.tail() }

// Signal sends a signal to the child. It returns os.ErrProcessDone when the
// child has exited.
func (p *Process) Signal(sig os.Signal) error {
	if err := p.cmd.Process.Signal(sig); err != nil {
		return fmt.Errorf("signal %s (pid %d): %w", p.name, p.PID(), err)
	}
	return nil
}

// Stop sends SIGTERM, and SIGKILL to the child's process group after a timeout of grace.
// It returns nil once the child has exited. It is idempotent.
func (p *Process) Stop(grace time.Duration) error {
	if err := p.Signal(syscall.SIGTERM); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return err
	}
	if p.exitsWithin(grace) {
		return nil
	}
	if err := syscall.Kill(-p.PID(), syscall.SIGKILL); err != nil && !errors.Is(err, syscall.ESRCH) {
		return fmt.Errorf("kill %s (pid %d): %w", p.name, p.PID(), err)
	}
	if p.exitsWithin(killWait) {
		return nil
	}
	return fmt.Errorf("%s (pid %d) has not exited %s after SIGKILL", p.name, p.PID(), killWait)
}

func (p *Process) exitsWithin(d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-p.finished:
		return true
	case <-timer.C:
		return false
	}
}

// tailLines and tailBytes bound how much of a log goes into an error.
const (
	tailLines = 10
	tailBytes = 4 << 10
)

// ExitError is returned for a child that did not exit with status 0.
type ExitError struct {
	// Name of the command.
	Name string
	// PID it had.
	PID int
	// LogFile that holds its output.
	LogFile string
	// Tail is the end of its output there, "" without output.
	Tail string
	// Cause is the *exec.ExitError with the exit status or signal.
	Cause error
}

// Error describes the exit and the end of the log.
func (e *ExitError) Error() string {
	head := fmt.Sprintf("%s (pid %d) ended with %v; it wrote to %s", e.Name, e.PID, e.Cause, e.LogFile)
	if e.Tail == "" {
		return head + " nothing"
	}
	return head + ", at the end:\n" + e.Tail
}

// Unwrap returns the cause.
func (e *ExitError) Unwrap() error { return e.Cause }

// logFile is the part of a log that one child wrote: from offset on.
type logFile struct {
	path   string
	offset int64
}

// tail returns the last lines, "" also when the file cannot be read: it is only part of
// another message.
func (l logFile) tail() string {
	f, err := os.Open(l.path)
	if err != nil {
		return ""
	}
	defer f.Close()
	from := l.offset
	if end, err := f.Seek(0, io.SeekEnd); err == nil {
		from = max(from, end-tailBytes)
	}
	b, err := io.ReadAll(io.NewSectionReader(f, from, tailBytes))
	if err != nil {
		return ""
	}
	return lastLines(string(b))
}

func lastLines(s string) string {
	lines := strings.Split(strings.TrimRight(s, "\n"), "\n")
	return strings.Join(lines[max(0, len(lines)-tailLines):], "\n")
}
