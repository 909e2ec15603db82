package engine

import (
	"context"
	"reflect"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"

	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/cloud/provider"
)

// faultPoint is a moment to die at: before a call is sent, or after the provider
// did what it asks for and before the answer is taken in.
type faultPoint struct {
	op    string
	after bool
}

// calls are the methods of provider.Cloud that reach the provider, as those that
// take a context do.
func calls() []reflect.Method {
	var out []reflect.Method
	cloud, ctx := reflect.TypeFor[provider.Cloud](), reflect.TypeFor[context.Context]()
	for i := range cloud.NumMethod() {
		if m := cloud.Method(i); m.Type.NumIn() > 0 && m.Type.In(0) == ctx {
			out = append(out, m)
		}
	}
	return out
}

// faultPoints are all that there are.
func faultPoints() []faultPoint {
	var out []faultPoint
	for _, m := range calls() {
		op := strings.ToLower(m.Name)
		out = append(out, faultPoint{op, false}, faultPoint{op, true})
	}
	return out
}

// killed is what the crasher panics with.
type killed struct{}

// crasher is a provider whose caller dies at chosen calls.
type crasher struct {
	provider.Cloud
	calls int
	// at are the calls to die at, counted from 1, in order; after says whether
	// the provider gets to see them.
	at    []int
	after bool
	ops   []string
}

func (c *crasher) around(op string, call func()) {
	c.calls++
	c.ops = append(c.ops, op)
	die := len(c.at) > 0 && c.at[0] == c.calls
	if die {
		c.at = c.at[1:]
	}
	if die && !c.after {
		panic(killed{})
	}
	call()
	if die {
		panic(killed{})
	}
}

func (c *crasher) Insert(ctx context.Context, r provider.InsertRequest) (op provider.Operation, err error) {
	c.around("insert", func() { op, err = c.Cloud.Insert(ctx, r) })
	return op, err
}

func (c *crasher) Get(ctx context.Context, r provider.Ref) (vm provider.Instance, err error) {
	c.around("get", func() { vm, err = c.Cloud.Get(ctx, r) })
	return vm, err
}

func (c *crasher) Delete(ctx context.Context, r provider.Ref, id string) (op provider.Operation, err error) {
	c.around("delete", func() { op, err = c.Cloud.Delete(ctx, r, id) })
	return op, err
}

func (c *crasher) Operation(ctx context.Context, zone, name string) (op provider.Operation, err error) {
	c.around("operation", func() { op, err = c.Cloud.Operation(ctx, zone, name) })
	return op, err
}

func (c *crasher) List(ctx context.Context) (l provider.Listing, err error) {
	c.around("list", func() { l, err = c.Cloud.List(ctx) })
	return l, err
}

// survive runs f and begins a new engine if the old one was killed in it. It
// reports whether it was not.
func (b *bench) survive(f func()) (ok bool) {
	defer func() {
		if r := recover(); r != nil {
			if _, isKill := r.(killed); !isKill {
				panic(r)
			}
			b.restart()
			ok = false
		}
	}()
	f()
	return true
}

func TestCrasherIsDeadly(t *testing.T) {
	c := &crasher{at: []int{2}}
	assert.NotPanics(t, func() { c.around("x", func() {}) })
	ran := false
	assert.PanicsWithValue(t, killed{}, func() { c.around("x", func() { ran = true }) })
	assert.False(t, ran)
	c = &crasher{at: []int{1}, after: true}
	assert.PanicsWithValue(t, killed{}, func() { c.around("x", func() { ran = true }) })
	assert.True(t, ran)
	assert.Equal(t, 1, c.calls)
}

// A call that the crasher let through would be a fault point that no test knows.
func TestCrasherKnowsEveryCall(t *testing.T) {
	assert.Len(t, faultPoints(), 10)
	for _, m := range calls() {
		c := &crasher{at: []int{1}}
		var in []reflect.Value
		for i := range m.Type.NumIn() {
			in = append(in, reflect.Zero(m.Type.In(i)))
		}
		assert.PanicsWithValue(t, killed{}, func() { reflect.ValueOf(c).MethodByName(m.Name).Call(in) }, m.Name)
		assert.Equal(t, []string{strings.ToLower(m.Name)}, c.ops)
	}
}
