package api

import (
	"context"
	"fmt"
	"sync"
)

// sharedLists has requests for the same list make it once. Hundreds may wait for one
// list to change; what one of them makes is good for all that came before it was
// begun. Nothing is kept for later: a list that nobody asks for takes no memory.
type sharedLists struct {
	mu    sync.Mutex
	lists map[string]*sharedList // by listQuery.key
}

// sharedList is a list that is asked for at this moment.
type sharedList struct {
	users int    // that hold a reference; guarded by sharedLists.mu
	begun uint64 // how often it was begun to be made; guarded by sharedLists.mu

	making sync.Mutex // one makes it at a time
	number uint64     // of the last one made: the value of begun then
	page   *page
	err    error
}

// of returns a list that was begun to be made after the call, by make or by another
// call with this key.
func (s *sharedLists) of(key string, make func() (*page, error)) (*page, error) {
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
	x.page, x.err = make()
	x.number = n // not when it panics: then the next one makes it
	return x.page, x.err
}

// enter returns the list, and how often it was begun to be made before.
func (s *sharedLists) enter(key string) (*sharedList, uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.lists == nil {
		s.lists = map[string]*sharedList{}
	}
	x := s.lists[key]
	if x == nil {
		x = &sharedList{}
		s.lists[key] = x
	}
	x.users++
	return x, x.begun
}

func (s *sharedLists) leave(key string, x *sharedList) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if x.users--; x.users == 0 {
		delete(s.lists, key)
	}
}

// key is the same for queries that get the same list. For how long they are ready
// to wait makes no difference.
func (q listQuery) key() string {
	// fmt prints maps in the order of their keys.
	return fmt.Sprintf("%q %s %s %q %q %d %q", q.selector, either(q.healthy), either(q.leasable), q.phase, q.namespace, q.limit, q.after)
}

func either(b *bool) string {
	if b == nil {
		return "any"
	}
	return fmt.Sprint(*b)
}

// page returns the list that the query asks for, as of some moment after the call.
func (s *Server) page(ctx context.Context, query listQuery) (*page, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	return s.shared.of(query.key(), func() (*page, error) {
		// It is for others, too: who leaves must not take it away from them.
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), storeTimeout)
		defer cancel()
		return s.makePage(ctx, query)
	})
}
