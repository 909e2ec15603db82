package walk

import (
	"context"
	"fmt"
	"io"
	"time"
)

// step is one part of the walk.
type step struct {
	title string
	run   func(*walker, context.Context) error
}

// steps in their order. Later ones build on what earlier ones left. Those about
// VMs are for stacks with a cloud.
func (s *Stack) steps() []step {
	all := []step{
		{"apply three proxies and wait until all are Ready", (*walker).applyProxies},
		{"list, lease by attributes, and crawl through the leased proxy", (*walker).leaseAndCrawl},
		{"report rate_limited, run dry, and release", (*walker).coolDown},
		{"edit spec.port: the instance is replaced under the same name", (*walker).replace},
		{"freeze a proxy, thaw it, kill it", (*walker).freezeAndKill},
	}
	if s.CloudProvider != "" {
		all = append(all,
			step{"apply a proxy on a cloud VM: made, probed, leased and crawled through", (*walker).runVM},
			step{"edit its zone: the VM is replaced, never two at once", (*walker).replaceVM})
	}
	return append(all, step{"delete everything", (*walker).deleteAll})
}

// Run walks the stack through all steps and writes what it does and sees to
// out. The error names the step that failed, what was expected and what was
// seen. The walk leaves its Proxies behind when it fails, for people to look
// at.
func Run(ctx context.Context, stack Stack, out io.Writer) error {
	w, err := newWalker(stack, out)
	if err != nil {
		return err
	}
	began := time.Now()
	steps := stack.steps()
	for i, s := range steps {
		start := time.Now()
		w.printf("\n== %d. %s\n", i+1, s.title)
		if err := s.run(w, ctx); err != nil {
			return fmt.Errorf("step %d (%s): %w", i+1, s.title, err)
		}
		w.printf("   done in %s\n", rounded(time.Since(start)))
	}
	w.printf("\nAll %d steps passed in %s.\n", len(steps), rounded(time.Since(began)))
	return nil
}

func rounded(d time.Duration) time.Duration {
	if d < time.Second {
		return d.Round(time.Millisecond)
	}
	return d.Round(100 * time.Millisecond)
}
