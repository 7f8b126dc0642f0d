package suite

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

// zeroQueue is a consumer without a queue: one call at a time, as upstream's.
type zeroQueue struct {
	pulsar.Consumer // of a kind that the test does not call
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

// A Seek gets its turn although a Receive waits, and however many have just returned.
func TestZeroQueueConsumerSeeksBetweenReceives(t *testing.T) {
	t.Parallel()
	for name, call := range map[string]func(*redelivery.Consumer) error{
		"Seek":        func(c *redelivery.Consumer) error { return c.SeekByTime(time.Now()) },
		"Unsubscribe": (*redelivery.Consumer).Unsubscribe,
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				z := &zeroQueue{turn: make(chan struct{}, 1), messages: make(chan pulsar.Message), closed: make(chan struct{})}
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
						require.FailNow(t, "it hangs", "round %d", n)
					}
				}
			})
		})
	}
}
