package controlplane

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"k8s.io/utils/clock"

	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/internal/process"
)

const (
	progressInterval = 10 * time.Second // the time between progress lines of a silent build
	// interruptGrace is how long an interrupted go build may take to remove its
	// temporary files.
	interruptGrace = 5 * time.Second
	// unfinished starts the names of files that a build is still writing, or
	// was when it was killed.
	unfinished = ".unfinished-"
)

// target is one program to build.
type target struct {
	binary  string
	pkg     string
	source  source
	ldflags string
}

// kubernetes are those programs of Kubernetes.
func (s source) kubernetes(binaries ...string) []target {
	var targets []target
	for _, binary := range binaries {
		targets = append(targets, target{binary: binary, pkg: kubernetesModule + "/cmd/" + binary, source: s, ldflags: "-s -w " + versionFlags(s.version)})
	}
	return targets
}

// versionFlags stamps the version as Kubernetes' own build does. Without it the
// server says v0.0.0-master+$Format:%H$, which clients fail to parse.
func versionFlags(v string) string {
	major, rest, _ := strings.Cut(strings.TrimPrefix(v, "v"), ".")
	minor, _, _ := strings.Cut(rest, ".")
	var flags []string
	for _, kv := range [][2]string{
		{"gitVersion", v}, {"gitMajor", major}, {"gitMinor", minor},
		{"gitCommit", "release"}, {"gitTreeState", "clean"}, {"buildDate", "1970-01-01T00:00:00Z"},
	} {
		flags = append(flags, fmt.Sprintf("-X %s.%s=%s", versionPackage, kv[0], kv[1]))
	}
	return strings.Join(flags, " ")
}

// builder fills one cache folder.
type builder struct {
	cache    cache
	progress io.Writer
	clock    clock.WithTicker
}

func newBuilder(c cache, progress io.Writer) *builder {
	return &builder{cache: c, progress: progress, clock: clock.RealClock{}}
}

// build builds the missing programs. When several processes build into the same folder, one works
// and the others wait for it.
func (b *builder) build(ctx context.Context) (err error) {
	goTool, err := exec.LookPath("go")
	if err != nil {
		return fmt.Errorf("build the control plane: %w: install Go, or set %s to a folder with the programs", err, AssetsEnv)
	}
	lock, err := b.cache.lock(ctx, func() { b.say("another build into %s is under way: waiting for it", b.cache.dir) })
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, lock.Release()) }()
	if err := b.sweep(); err != nil {
		return err
	}
	targets := slices.DeleteFunc(slices.Clone(b.cache.targets), func(t target) bool {
		_, err := exec.LookPath(b.cache.path(t.binary))
		return err == nil
	})
	if len(targets) == 0 {
		return nil
	}
	b.say("building "+b.cache.what+" into %s; this takes minutes the first time and is not needed again", b.cache.dir)
	for i, t := range targets {
		label := fmt.Sprintf("[%d/%d] %s %s", i+1, len(targets), t.binary, t.source.version)
		if err := b.buildOne(ctx, goTool, t, label); err != nil {
			return err
		}
	}
	return nil
}

func (b *builder) say(format string, args ...any) { fmt.Fprintf(b.progress, format+"\n", args...) }

// sweep removes what killed builds left. It runs under the lock.
func (b *builder) sweep() error {
	left, err := filepath.Glob(b.cache.path(unfinished + "*"))
	if err != nil {
		return fmt.Errorf("look for unfinished builds: %w", err)
	}
	for _, path := range left {
		if err := os.Remove(path); err != nil {
			return fmt.Errorf("remove an unfinished build: %w", err)
		}
	}
	return nil
}

func (b *builder) buildOne(ctx context.Context, goTool string, t target, label string) error {
	began := b.clock.Now()
	partial := b.cache.path(unfinished + t.binary)
	log := b.cache.path("build-" + t.binary + ".log")
	p, err := process.Start(process.Command{
		Name:    "go build " + t.binary,
		Path:    goTool,
		Args:    []string{"build", "-mod=readonly", "-buildvcs=false", "-trimpath", "-ldflags", t.ldflags, "-o", partial, t.pkg},
		Env:     append(os.Environ(), "CGO_ENABLED=0", "GOWORK=off"),
		Dir:     t.source.dir,
		LogFile: log,
	})
	if err != nil {
		return fmt.Errorf("build the control plane: %w", err)
	}
	if err := b.watch(ctx, p, label, began); err != nil {
		return fmt.Errorf("build the control plane: %w", err)
	}
	if err := os.Rename(partial, b.cache.path(t.binary)); err != nil {
		return fmt.Errorf("put the built %s in its place: %w", t.binary, err)
	}
	_ = os.Remove(log) // it only matters when the build fails
	b.say("%s: done after %s", label, b.elapsed(began))
	return nil
}

// watch waits for the build and reports progress. When ctx ends it interrupts the build.
func (b *builder) watch(ctx context.Context, p *process.Process, label string, began time.Time) error {
	ticker := b.clock.NewTicker(progressInterval)
	defer ticker.Stop()
	b.say("%s: building", label)
	for {
		select {
		case <-p.Done():
			return p.Wait()
		case <-ticker.C():
			b.say("%s: still building after %s%s", label, b.elapsed(began), lastLine(p))
		case <-ctx.Done():
			_ = p.Signal(os.Interrupt) // go build tidies up on SIGINT, not on SIGTERM
			select {
			case <-p.Done():
			case <-b.clock.After(interruptGrace):
			}
			return fmt.Errorf("interrupted: %w", errors.Join(ctx.Err(), p.Stop(0)))
		}
	}
}

func (b *builder) elapsed(began time.Time) time.Duration {
	return b.clock.Since(began).Round(time.Second)
}

// lastLine is the last line of the build's output, such as the module that it downloads, in
// brackets; "" when there is none.
func lastLine(p *process.Process) string {
	out := p.LogTail()
	if out == "" {
		return ""
	}
	return " (" + out[strings.LastIndexByte(out, '\n')+1:] + ")"
}
