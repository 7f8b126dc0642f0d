package worker_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/pulsar-redelivery/redelivery"
	"github.com/pulsar-redelivery/redelivery/worker"
)

func TestSecondWorkerOfAConsumerIsRefusedUntilTheFirstEnds(t *testing.T) {
	virtually(t, orders, func(t *rig) {
		first, stop := t.start(succeed)
		t.sleep(time.Second)
		second, err := worker.New(t.consumer, succeed, worker.WithLogger(t.logger))
		require.NoError(t, err)
		err = second.Run(context.Background())
		require.ErrorIs(t, err, redelivery.ErrInvalidOption)
		require.ErrorContains(t, err, "another Worker runs with the Consumer virtual of subscription billing")
		require.ErrorContains(t, first.Run(context.Background()), "Run was called before")
		require.NoError(t, stop())
		again := t.run(second)
		t.publish("tea")
		t.sleep(time.Second)
		require.NoError(t, again())
		require.EqualValues(t, 1, second.Stats().Succeeded)
	})
}
