package walk

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestAwaitReturnsWhenTheConditionHolds(t *testing.T) {
	calls := 0
	_, err := await(context.Background(), time.Minute, func(context.Context) error {
		if calls++; calls < 3 {
			return errors.New("not yet")
		}
		return nil
	})
	require.NoError(t, err)
	assert.Equal(t, 3, calls)
}

func TestAwaitTimeoutNamesTheLastError(t *testing.T) {
	_, err := await(context.Background(), 1, func(ctx context.Context) error {
		<-ctx.Done()
		return errors.New("berlin is Probing")
	})
	assert.EqualError(t, err, "not within 1ns: berlin is Probing")
}

func TestAwaitTimeoutKeepsTheLastRealError(t *testing.T) {
	ctx, cancel := context.WithCancel(context.Background())
	calls := 0
	_, err := await(ctx, time.Minute, func(ctx context.Context) error {
		if calls++; calls == 1 {
			return errors.New("pod a is left")
		}
		cancel()
		return ctx.Err()
	})
	assert.ErrorContains(t, err, "pod a is left")
}
