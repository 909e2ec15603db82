package api

import (
	"context"

	"golang.org/x/sync/singleflight"
)

// sharedPages makes a page once for concurrent requests with the same query: hundreds
// may wait for one list to change. Unlike a singleflight.Group alone, it never returns a
// page that was begun before the call, which could miss the change that woke the
// request. Nothing is cached: a page without waiting requests takes no memory.
type sharedPages struct {
	next, current singleflight.Group // builds that have not begun, and that have
}

// get returns a page that was begun after the call, by build or by the build of
// another call with this key.
func (s *sharedPages) get(key string, build func() (*page, error)) (*page, error) {
	v, err, _ := s.next.Do(key, func() (any, error) {
		_, _, _ = s.current.Do(key, func() (any, error) { return nil, nil }) // wait for the current build
		v, err, _ := s.current.Do(key, func() (any, error) {
			s.next.Forget(key) // later calls need another build
			return build()
		})
		return v, err
	})
	p, _ := v.(*page)
	return p, err
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
