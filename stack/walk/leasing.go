package walk

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"
)

// askInterval is how often the crawler in the background asks.
const askInterval = 20 * time.Millisecond

// leasing is a crawler that asks for one proxy over and over, gives each lease
// back, and notes what it was given and where the list offers it.
type leasing struct {
	cancel context.CancelFunc
	done   chan struct{}

	mu   sync.Mutex
	seen grants
}

// grants is what it noted.
type grants struct {
	asked, refused int
	list           []granted // leases, and entries of the list that say leasable
	err            error
}

// granted is one grant: when it was asked for, where, and whether something
// answered there.
type granted struct {
	asked time.Time
	host  string
	port  int
	err   error
}

// startLeasing starts a crawler that asks for the proxy of that city.
func (w *walker) startLeasing(ctx context.Context, city string) *leasing {
	ctx, cancel := context.WithCancel(ctx)
	l := &leasing{cancel: cancel, done: make(chan struct{})}
	go func() {
		defer close(l.done)
		tick := time.NewTicker(askInterval)
		defer tick.Stop()
		for ctx.Err() == nil {
			l.ask(ctx, w.api, city)
			l.look(ctx, w.api, city)
			select {
			case <-ctx.Done():
			case <-tick.C:
			}
		}
	}()
	return l
}

func (l *leasing) ask(ctx context.Context, api *discoveryClient, city string) {
	asked := time.Now()
	g, refused, err := api.lease(ctx, leaseRequest{Selector: map[string]string{"city": city}, TTLSeconds: leaseTTL})
	if ctx.Err() != nil && g == nil {
		return
	}
	note := granted{asked: asked}
	if g != nil {
		note.host, note.port = g.Proxy.Host, g.Proxy.Port
		note.err = errors.Join(answers(ctx, g.Proxy), api.release(context.WithoutCancel(ctx), g.LeaseID))
		if ctx.Err() != nil {
			note.err = nil // cut off by stop
		}
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.seen.asked++
	switch {
	case err != nil:
		l.seen.err = errors.Join(l.seen.err, err)
	case refused != nil:
		l.seen.refused++
	default:
		l.seen.list = append(l.seen.list, note)
	}
}

// look notes where the list offers the proxy, which has the name of its city.
func (l *leasing) look(ctx context.Context, api *discoveryClient, name string) {
	asked := time.Now()
	p, err := api.find(ctx, name)
	if ctx.Err() != nil {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case err != nil:
		l.seen.err = errors.Join(l.seen.err, err)
	case p.Leasable:
		l.seen.list = append(l.seen.list, granted{asked: asked, host: p.Host, port: p.Port})
	}
}

// grantedAt reports whether the last grant was at that address.
func (l *leasing) grantedAt(host string, port int) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if n := len(l.seen.list); n == 0 || l.seen.list[n-1].host != host || l.seen.list[n-1].port != port {
		return fmt.Errorf("not leased at %s:%d yet", host, port)
	}
	return nil
}

// stop ends the crawler and returns what it noted. It can be called again.
func (l *leasing) stop() grants {
	l.cancel()
	<-l.done
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.seen
}
