package suite

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/apache/pulsar-client-go/pulsar"
	"github.com/stretchr/testify/require"

	"github.com/pulsar-redelivery/redelivery"
)

// What was asked for before a Seek is sent after it, and its answer may come after the message was acknowledged.
func TestAskedForBeforeASeek(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c, s := newStandIn(t, pulsar.ConsumerOptions{Type: pulsar.Shared}, redelivery.WithRedeliveryResolution(5*time.Second))
		s.publish(entries(1)...)
		require.NoError(t, c.NackWithDelay(receive(t, c), 0)) // asked for; sent with the next tick
		synctest.Wait()
		s.onSeek = func() { go s.redeliver(func(position) bool { return true }) }
		require.NoError(t, c.SeekByTime(time.Time{}))
		msg := receive(t, c)
		time.Sleep(4695 * time.Millisecond) // after the tick: the broker has sent the copy
		require.NoError(t, c.Ack(msg))
		time.Sleep(10 * time.Second) // the application is busy
		nothing(t, c, 10*time.Second)
	})
}

// The number of a hand-over wraps.
func TestNackAfter256HandOvers(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c, s := newStandIn(t, pulsar.ConsumerOptions{Type: pulsar.Exclusive}, redelivery.WithAckTimeout(time.Minute))
		s.publish(entries(1)...)
		first := receive(t, c)
		msg := first
		for range 256 {
			require.NoError(t, c.NackWithDelay(msg, 0))
			msg = receive(t, c)
		}
		require.NoError(t, c.NackWithDelay(first, 0)) // is stale
		nothing(t, c, 10*time.Second)
	})
}
