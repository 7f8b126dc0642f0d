package receive

import (
	"context"
	"io"
	"testing"
	"testing/synctest"
	"time"

	"github.com/apache/pulsar-client-go/pulsar"
	"github.com/stretchr/testify/require"

	"github.com/pulsar-redelivery/redelivery"
	"github.com/pulsar-redelivery/redelivery/test/testkit"
)

// Chan of upstream's zero-queue consumer panics.
func TestZeroQueueConsumerHasAChannel(t *testing.T) {
	t.Parallel()
	b := testkit.NewBroker(t)
	topic := b.NewTopic(0)
	b.Send(topic, 3, false)
	opts := b.Options(topic, pulsar.Shared)
	opts.EnableZeroQueueConsumer = true
	c := b.Subscribe(opts)
	for range 3 {
		select {
		case cm := <-c.Chan():
			require.NoError(t, cm.Ack(cm))
		case <-time.After(15 * time.Second):
			require.FailNow(t, "no message")
		}
	}
	b.Settles(topic, 0)
}

// In upstream's zero-queue consumer, each Receive whose context ends leaves a permit at the broker. If the Consumer
// called Receive again for each event that wakes a waiting Receive, there would be more permits.
func TestZeroQueueConsumerAsksForOneMessage(t *testing.T) {
	t.Parallel()
	b := testkit.NewBroker(t)
	topic := b.NewTopic(0)
	opts := b.Options(topic, pulsar.Shared)
	opts.EnableZeroQueueConsumer = true
	c := b.Subscribe(opts)
	for range 100 {
		ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
		_, err := c.Receive(ctx)
		cancel()
		require.ErrorIs(t, err, context.DeadlineExceeded)
	}
	b.Send(topic, 50, false)
	time.Sleep(500 * time.Millisecond)
	require.LessOrEqual(t, b.Stats(topic, 0).Unacked, 2)
	for range 50 {
		require.NoError(t, c.Ack(testkit.Receive(t, c)))
	}
	b.Settles(topic, 0)
}

// zeroQueue is a consumer without a queue. Like upstream's, it allows one call at a time.
type zeroQueue struct {
	pulsar.Consumer // nil: the test calls none of its other methods
	turn            chan struct{}
	messages        chan pulsar.Message
	closed          chan struct{}
}

func (z *zeroQueue) Name() string                        { return "zero-queue" }
func (z *zeroQueue) Subscription() string                { return testkit.Subscription }
func (z *zeroQueue) Chan() <-chan pulsar.ConsumerMessage { panic("zero-queue") }
func (z *zeroQueue) AckID(pulsar.MessageID) error        { return nil }
func (z *zeroQueue) Close()                              { close(z.closed) }
func (z *zeroQueue) SeekByTime(time.Time) error          { return z.alone() }
func (z *zeroQueue) Unsubscribe() error                  { return z.alone() }

func (z *zeroQueue) alone() error {
	z.turn <- struct{}{}
	<-z.turn
	return nil
}

func (z *zeroQueue) Receive(ctx context.Context) (pulsar.Message, error) {
	z.turn <- struct{}{}
	defer func() { <-z.turn }()
	select {
	case msg := <-z.messages:
		return msg, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	case <-z.closed:
		return nil, testkit.ErrFakeClosed
	}
}

// Seek and Unsubscribe proceed although a Receive waits and many calls of Receive have just returned.
func TestZeroQueueConsumerSeeksBetweenReceives(t *testing.T) {
	t.Parallel()
	for name, call := range map[string]func(*redelivery.Consumer) error{
		"Seek":        func(c *redelivery.Consumer) error { return c.SeekByTime(time.Now()) },
		"Unsubscribe": (*redelivery.Consumer).Unsubscribe,
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				z := &zeroQueue{turn: make(chan struct{}, 1), messages: make(chan pulsar.Message),
					closed: make(chan struct{})}
				c, err := redelivery.Wrap(z, testkit.LogTo(io.Discard))
				require.NoError(t, err)
				defer c.Close()
				go func() {
					for {
						msg, err := c.Receive(context.Background())
						if err != nil {
							return
						}
						_ = c.Ack(msg)
					}
				}()
				for n := range int64(20_000) {
					msg := testkit.Entry("t", n)
					z.messages <- &msg
					done := make(chan error, 1)
					go func() { done <- call(c) }()
					select {
					case err := <-done:
						require.NoError(t, err)
					case <-time.After(time.Minute):
						require.FailNow(t, "the call hangs", "round %d", n)
					}
				}
			})
		})
	}
}
