package walk

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/client"
)

// crawlerInterval is the time between two lease requests of the crawler in the background.
const crawlerInterval = 20 * time.Millisecond

// leasing is a crawler that acquires and releases leases of one proxy over and over. It records the granted addresses and
// those of the list.
type leasing struct {
	halt func()

	mu   sync.Mutex
	seen grants
}

// grants is what the crawler recorded.
type grants struct {
	asked, refused int
	list           []granted // leases, and list elements that are leasable
	err            error
}

// granted is one grant: when it was requested, its address, and an error when nothing accepted a connection there.
type granted struct {
	asked time.Time
	host  string
	port  int
	err   error
}

// startLeasing starts a crawler that leases the proxy of that city.
func (w *walker) startLeasing(ctx context.Context, city string) *leasing {
	l := &leasing{}
	l.halt = repeat(ctx, func(ctx context.Context) {
		l.acquire(ctx, w.api, city)
		l.look(ctx, w.api, city)
	})
	return l
}

// repeat calls f over and over, until ctx ends or the returned function is called, which waits for f.
func repeat(ctx context.Context, f func(context.Context)) (halt func()) {
	ctx, cancel := context.WithCancel(ctx)
	done := make(chan struct{})
	go func() {
		defer close(done)
		for ; ctx.Err() == nil; time.Sleep(crawlerInterval) {
			f(ctx)
		}
	}()
	return func() { cancel(); <-done }
}

func (l *leasing) acquire(ctx context.Context, api *discoveryAPI, city string) {
	note := granted{asked: time.Now()}
	lease, err := api.Acquire(ctx, want(map[string]string{"city": city}, ""))
	if ctx.Err() != nil && lease == nil {
		return
	}
	if lease != nil {
		note.host, note.port = lease.Proxy.Host, lease.Proxy.Port
		note.err = errors.Join(accepts(ctx, lease.Proxy), lease.Release(context.WithoutCancel(ctx)))
		if ctx.Err() != nil {
			note.err = nil // canceled by stop
		}
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.seen.asked++
	switch {
	case errors.Is(err, client.ErrNoProxy):
		l.seen.refused++
	case err != nil:
		l.seen.err = errors.Join(l.seen.err, err)
	default:
		l.seen.list = append(l.seen.list, note)
	}
}

// look records where the list offers the proxy, which has the name of its city.
func (l *leasing) look(ctx context.Context, api *discoveryAPI, name string) {
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

// stop ends the crawler and returns what it recorded. It can be called again.
func (l *leasing) stop() grants {
	l.halt()
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.seen
}
