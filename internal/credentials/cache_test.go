package credentials

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	clocktesting "k8s.io/utils/clock/testing"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const cacheTTL = time.Minute

// secrets stands in for the API server's.
type secrets struct {
	password string
	err      error
	reads    int
	hang     func(ctx context.Context) error // nil for none
}

func (s *secrets) Read(ctx context.Context, _, _ string) (Credentials, error) {
	s.reads++
	if s.hang != nil {
		return Credentials{}, s.hang(ctx)
	}
	return New("crawler", s.password), s.err
}

func newTestCache(s *secrets) (*Cache, *clocktesting.FakeClock) {
	clk := clocktesting.NewFakeClock(time.Date(2026, 11, 1, 12, 0, 0, 0, time.UTC))
	return NewCache(s, cacheTTL, clk), clk
}

func TestCache(t *testing.T) {
	store := &secrets{password: "one"}
	cache, clk := newTestCache(store)
	reads := func(want string, reads int) {
		t.Helper()
		c, err := cache.Read(t.Context(), "crawl", "vendor")
		require.NoError(t, err)
		assert.Equal(t, New("crawler", want), c)
		assert.Equal(t, reads, store.reads)
	}
	reads("one", 1)
	store.password = "two"
	clk.Step(cacheTTL - time.Second)
	reads("one", 1) // kept for a short while
	clk.Step(time.Second)
	reads("two", 2)

	store.password = "three"
	cache.Doubt("crawl", "vendor")
	reads("three", 3) // a refusal has it read again at once
	cache.Doubt("crawl", "unheard-of")

	store.err = errors.New("no API server")
	clk.Step(cacheTTL)
	reads("three", 4) // what is known stays in use
	clk.Step(cacheTTL / 2)
	reads("three", 4) // and the API server is not asked each time
}

func TestCacheHeedsANo(t *testing.T) {
	store := &secrets{}
	cache, clk := newTestCache(store)
	forbidden := apierrors.NewForbidden(schema.GroupResource{Resource: "secrets"}, "vendor", errors.New("no Role"))
	for _, no := range []error{fmt.Errorf("unlabelled: %w", ErrRefused), fmt.Errorf("get secret: %w", forbidden)} {
		store.err = nil
		_, err := cache.Read(t.Context(), "crawl", "vendor")
		require.NoError(t, err)
		store.err = no
		clk.Step(cacheTTL)
		_, err = cache.Read(t.Context(), "crawl", "vendor")
		require.ErrorIs(t, err, no)
		store.err = errors.New("no API server")
		_, err = cache.Read(t.Context(), "crawl", "vendor")
		require.ErrorIs(t, err, store.err, "what was taken away is not used any longer")
	}
}

func TestUnusedCredentialsLeaveTheMemory(t *testing.T) {
	cache, clk := newTestCache(&secrets{})
	for i := range 50 {
		_, err := cache.Read(t.Context(), "crawl", fmt.Sprint(i))
		require.NoError(t, err)
	}
	for range 20 {
		clk.Step(time.Minute)
		_, err := cache.Read(t.Context(), "crawl", "7")
		require.NoError(t, err)
	}
	assert.Len(t, cache.entries, 1)
}

func TestOneCallerWaitsForAnAPIServerThatHangs(t *testing.T) {
	store := &secrets{password: "one"}
	cache, clk := newTestCache(store)
	_, err := cache.Read(t.Context(), "crawl", "vendor")
	require.NoError(t, err)
	clk.Step(cacheTTL)
	ctx, gone := context.WithCancel(t.Context())
	asked, ended := make(chan struct{}), make(chan struct{})
	store.hang = func(ctx context.Context) error {
		close(asked)
		<-ctx.Done()
		return ctx.Err()
	}
	go func() {
		defer close(ended)
		_, _ = cache.Read(ctx, "crawl", "vendor")
	}()
	<-asked
	c, err := cache.Read(t.Context(), "crawl", "vendor")
	require.NoError(t, err)
	assert.Equal(t, New("crawler", "one"), c, "the others go on with what was read last")
	gone()
	<-ended
}
