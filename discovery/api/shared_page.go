package api

import (
	"context"
	"sync"
)

// sharedPages makes a page once for concurrent requests with the same query: hundreds
// may wait for one list to change. Unlike a singleflight.Group, it never returns a
// page that was begun before the call, which could miss the change that woke the
// request. Nothing is cached: a page without waiting requests takes no memory.
type sharedPages struct {
	mu    sync.Mutex
	pages map[string]*sharedPage // by listQuery.key
}

// sharedPage is a page that at least one request needs at this moment.
type sharedPage struct {
	users int    // guarded by sharedPages.mu
	begun uint64 // the number of the last one begun; guarded by sharedPages.mu

	making sync.Mutex // one at a time
	number uint64     // of the result below
	page   *page
	err    error
}

// get returns a page that was begun after the call, by build or by the build of
// another call with this key.
func (s *sharedPages) get(key string, build func() (*page, error)) (*page, error) {
	x, before := s.enter(key)
	defer s.leave(key, x)
	x.making.Lock()
	defer x.making.Unlock()
	if x.number > before {
		return x.page, x.err
	}
	s.mu.Lock()
	x.begun++
	n := x.begun
	s.mu.Unlock()
	x.page, x.err = build()
	x.number = n // not after a panic: then the next call builds
	return x.page, x.err
}

func (s *sharedPages) enter(key string) (x *sharedPage, begun uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.pages == nil {
		s.pages = map[string]*sharedPage{}
	}
	x = s.pages[key]
	if x == nil {
		x = &sharedPage{}
		s.pages[key] = x
	}
	x.users++
	return x, x.begun
}

func (s *sharedPages) leave(key string, x *sharedPage) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if x.users--; x.users == 0 {
		delete(s.pages, key)
	}
}

// page returns the page of the query as of some moment after the call.
func (s *Server) page(ctx context.Context, query listQuery) (*page, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	return s.shared.get(query.key(), func() (*page, error) {
		// Other requests may share it, so this one's end must not cancel it.
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), storeTimeout)
		defer cancel()
		return s.makePage(ctx, query)
	})
}
