package lease

import "sync"

// Signal wakes whoever waits for something to happen, all at once. The zero
// value is ready.
type Signal struct {
	mu sync.Mutex
	c  chan struct{} // nil while nobody waits
}

// C returns a channel that is closed at the next Broadcast. Take it first, look
// then, and wait last: so nothing is missed.
func (s *Signal) C() <-chan struct{} {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.c == nil {
		s.c = make(chan struct{})
	}
	return s.c
}

// Broadcast wakes all who wait.
func (s *Signal) Broadcast() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.c != nil {
		close(s.c)
		s.c = nil
	}
}
