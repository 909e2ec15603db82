package node

import (
	"errors"
	"fmt"
	"os/exec"
	"strings"
	"syscall"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/internal/process"
)

// Reasons of waiting and ended containers, as the kubelet spells them.
const (
	reasonCrashLoop   = "CrashLoopBackOff"
	reasonConfigError = "CreateContainerConfigError"
	reasonNoAddress   = "OutOfAddresses"
	reasonStartError  = "RunContainerError"
	reasonError       = "Error"
	reasonCompleted   = "Completed"
	reasonUnknown     = "ContainerStatusUnknown"
)

// maxMessage bounds messages in the status, in bytes; the log has all of it.
const maxMessage = 1024

// containerIDPrefix precedes the pid in a container's id.
const containerIDPrefix = "process://"

func containerID(pid int) string { return fmt.Sprintf("%s%d", containerIDPrefix, pid) }

// started records a running process.
func (c *container) started(proc *process.Process) {
	c.log.Info("process started", "pid", proc.PID(), "program", c.launch.Name, "addr", c.addr.String())
	c.set(func(s *containerState) {
		s.ID = containerID(proc.PID())
		s.Current = corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: c.now()}}
	})
}

// ended records how a process ended, or startErr when none could be started (proc is nil), and the
// backoff before the next one.
func (c *container) ended(proc *process.Process, startErr error, delay time.Duration) {
	waiting := &corev1.ContainerStateWaiting{Reason: reasonCrashLoop, Message: fmt.Sprintf("back-off %s restarting the %s", delay, c.launch.Name)}
	if proc == nil {
		c.log.Error("process cannot be started", "retryIn", delay, "err", startErr)
		waiting = &corev1.ContainerStateWaiting{Reason: reasonStartError, Message: shorten(startErr.Error())}
		c.set(func(s *containerState) { s.Current = corev1.ContainerState{Waiting: waiting} })
		return
	}
	exit := proc.Wait() // it has exited already
	c.log.Warn("process ended", "pid", proc.PID(), "restartIn", delay, "err", exit)
	terminated := terminatedState(exit)
	c.set(func(s *containerState) {
		if s.Current.Running != nil {
			terminated.StartedAt = s.Current.Running.StartedAt
		}
		terminated.ContainerID, terminated.FinishedAt = s.ID, c.now()
		s.Last = corev1.ContainerState{Terminated: terminated}
		s.Current = corev1.ContainerState{Waiting: waiting}
	})
}

// now has whole seconds, as the API server stores times.
func (c *container) now() metav1.Time {
	return metav1.NewTime(c.clock.Now().UTC().Truncate(time.Second))
}

// terminatedState converts the error of Wait.
func terminatedState(err error) *corev1.ContainerStateTerminated {
	if err == nil {
		return &corev1.ContainerStateTerminated{Reason: reasonCompleted}
	}
	out := &corev1.ContainerStateTerminated{Reason: reasonError, ExitCode: 1, Message: shorten(err.Error())}
	var ended *process.ExitError
	if errors.As(err, &ended) {
		out.Message = shorten(ended.Tail)
	}
	var exit *exec.ExitError
	if !errors.As(err, &exit) {
		return out
	}
	out.ExitCode = int32(exit.ExitCode())
	if status, ok := exit.Sys().(syscall.WaitStatus); ok && status.Signaled() {
		out.Signal = int32(status.Signal())
		out.ExitCode = 128 + out.Signal // as shells and container runtimes do
	}
	return out
}

// shorten keeps the end, which describes the last failure, in valid UTF-8.
func shorten(s string) string {
	if len(s) > maxMessage {
		s = s[len(s)-maxMessage:]
	}
	return strings.ToValidUTF8(s, "?")
}

// inherited is the state of a container of an earlier node: its process died with that node, so the
// next one counts as a restart.
func inherited(pod *corev1.Pod, now metav1.Time) containerState {
	if len(pod.Status.ContainerStatuses) == 0 || pod.Status.ContainerStatuses[0].ContainerID == "" {
		return containerState{}
	}
	old := pod.Status.ContainerStatuses[0]
	s := containerState{ID: old.ContainerID, Restarts: old.RestartCount + 1, Last: old.LastTerminationState}
	if old.State.Running != nil {
		s.Last = corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{
			ExitCode:    137, // killed, as the kubelet reports exits that it did not see
			Reason:      reasonUnknown,
			Message:     "the node was restarted",
			StartedAt:   old.State.Running.StartedAt,
			FinishedAt:  now,
			ContainerID: old.ContainerID,
		}}
	}
	return s
}
