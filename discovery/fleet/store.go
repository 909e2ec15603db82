package fleet

import (
	"fmt"
	"sync/atomic"

	"k8s.io/client-go/tools/cache"

	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/discovery/lease"
)

// objectStore adapts functions over one type to a cache.ReflectorStore.
type objectStore[T any] struct {
	read        func(obj any) (T, error)
	put, remove func(T)
	replace     func([]T)
	changed     *lease.Signal
	synced      atomic.Bool // the first list is in
}

var _ cache.TransformingStore = (*objectStore[int])(nil)

// as returns a read function for objects that are a T already.
func as[T any](what string) func(any) (T, error) {
	return func(obj any) (T, error) {
		t, ok := obj.(T)
		if !ok {
			return t, fmt.Errorf("watch of %s returned a %T", what, obj)
		}
		return t, nil
	}
}

// Transformer lets the watch read a list's objects one by one, before it has the
// whole list in memory.
func (s *objectStore[T]) Transformer() cache.TransformFunc {
	return func(obj any) (any, error) { return s.read(obj) }
}

func (s *objectStore[T]) apply(obj any, f func(T)) error {
	t, err := s.read(obj)
	if err == nil {
		f(t)
	}
	return err
}

// Add, Update, Delete, Replace and Resync implement cache.ReflectorStore.
func (s *objectStore[T]) Add(obj any) error { return s.apply(obj, s.put) }

// Update replaces an object.
func (s *objectStore[T]) Update(obj any) error { return s.apply(obj, s.put) }

// Delete removes an object.
func (s *objectStore[T]) Delete(obj any) error { return s.apply(obj, s.remove) }

// Replace replaces all objects by those of a list.
func (s *objectStore[T]) Replace(objs []any, _ string) error {
	list := make([]T, len(objs))
	for i, obj := range objs {
		t, err := s.read(obj)
		if err != nil {
			return err
		}
		list[i] = t
	}
	s.replace(list)
	s.synced.Store(true)
	s.changed.Broadcast()
	return nil
}

// Resync does nothing: there are no event handlers.
func (s *objectStore[T]) Resync() error { return nil }
