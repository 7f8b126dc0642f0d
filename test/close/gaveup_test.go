package close

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/apache/pulsar-client-go/pulsar"
	"github.com/stretchr/testify/require"

	"github.com/pulsar-redelivery/redelivery"
	"github.com/pulsar-redelivery/redelivery/internal/waittest"
	"github.com/pulsar-redelivery/redelivery/pulsartest"
	"github.com/pulsar-redelivery/redelivery/test/testkit"
)

// The last topic that gives up ends the Consumer.
func TestFailuresOfTopicsThatEndTogetherAreAllReported(t *testing.T) {
	t.Parallel()
	// If the Consumer's method childClosed added a failure without the lock, about one round in a few thousand would
	// miss a failure.
	for range 10_000 {
		failed := make(chan redelivery.Failed, 3)
		_, s := testkit.NewStandIn(t, pulsar.ConsumerOptions{Topics: []string{"a", "b"}, Type: pulsar.Shared},
			redelivery.WithObserver(redelivery.Observer{Failed: func(e redelivery.Failed) { failed <- e }}))
		var all sync.WaitGroup
		for range 2 {
			child := &testkit.StandIn{}
			all.Go(func() { s.Opts.Interceptors.OnConsumerClose(child, errors.New("gave up")) })
		}
		all.Wait()
		for n := range 2 {
			select {
			case <-failed:
			case <-time.After(testkit.Patience):
				require.FailNow(t, "a failure is not reported", "after %d", n)
			}
		}
	}
}

// Close of upstream's zero-queue consumer waits for its Receive, which waits for a message.
func TestReceiveOfZeroQueueConsumerReturnsWhenItsTopicIsDeleted(t *testing.T) {
	t.Parallel()
	b := testkit.NewBrokerInProcess(t, pulsar.ClientOptions{}, pulsartest.WithoutTopicCreation())
	opts := b.Options(b.NewTopic(0), pulsar.Shared)
	opts.EnableZeroQueueConsumer = true
	failed := make(chan redelivery.Failed, 1)
	c := b.Subscribe(opts, redelivery.WithObserver(redelivery.Observer{Failed: func(e redelivery.Failed) { failed <- e }}))
	received := make(chan error, 1)
	go func() { _, err := c.Receive(t.Context()); received <- err }()
	time.Sleep(100 * time.Millisecond)
	b.Admin("DELETE", opts.Topic, "?force=true", nil, nil)
	select {
	case err := <-received:
		require.Error(t, err)
	case <-time.After(testkit.Patience):
		require.FailNow(t, "Receive hangs")
	}
	require.ErrorContains(t, (<-failed).Err, "TopicNotFound")
}

// Upstream's Receive goes on after the Receive of the application has ended, and upstream's Close waits for it.
func TestZeroQueueConsumerWithoutReceiverEndsWhenItsTopicIsDeleted(t *testing.T) {
	t.Parallel()
	b := testkit.NewBrokerInProcess(t, pulsar.ClientOptions{}, pulsartest.WithoutTopicCreation())
	opts := b.Options(b.NewTopic(0), pulsar.Shared)
	opts.EnableZeroQueueConsumer = true
	c := b.Subscribe(opts)
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	_, err := c.Receive(ctx)
	require.ErrorIs(t, err, context.DeadlineExceeded)
	b.Admin("DELETE", opts.Topic, "?force=true", nil, nil)
	waittest.Next(t, c.Done())
	_, err = c.Receive(t.Context())
	require.Error(t, err)
}

func TestCloseByObserverOfTheLossReturns(t *testing.T) {
	t.Parallel()
	b, once := testkit.NewBrokerInProcess(t, pulsar.ClientOptions{OperationTimeout: 3 * time.Second}), uint(1)
	opts := b.Options(b.NewTopic(0), pulsar.Shared)
	opts.MaxReconnectToBroker = &once
	closed := make(chan struct{})
	b.Subscribe(opts, redelivery.WithObserver(redelivery.Observer{Lost: func(e redelivery.Lost) {
		if e.Why == redelivery.LostConsumer {
			e.Consumer.Close()
			close(closed)
		}
	}}))
	b.InProcess.RefuseConnections(true)
	b.InProcess.DropConnections()
	waittest.Next(t, closed)
}

// The interceptor begins after Close has begun, and waits until Close has returned.
func TestCloseReturnsThoughAnInterceptorWaitsForItsCaller(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		returned := make(chan struct{})
		waits := testkit.Callbacks{Closed: func() { <-returned }}
		c, _ := testkit.NewStandIn(t, pulsar.ConsumerOptions{Topic: "a", Type: pulsar.Shared,
			Interceptors: pulsar.ConsumerInterceptors{waits}})
		c.Close()
		close(returned)
		synctest.Wait()
	})
}
