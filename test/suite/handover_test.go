package suite

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/apache/pulsar-client-go/pulsar"
	"github.com/stretchr/testify/require"

	"github.com/pulsar-redelivery/redelivery"
	"github.com/pulsar-redelivery/redelivery/test/testkit"
)

// What was asked for before a Seek is sent after it, and its answer may come after the message was acknowledged.
func TestAskedForBeforeASeek(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c, s := testkit.NewStandIn(t, pulsar.ConsumerOptions{Type: pulsar.Shared}, redelivery.WithRedeliveryResolution(5*time.Second))
		s.Publish(testkit.Entries(1)...)
		require.NoError(t, c.NackWithDelay(testkit.Receive(t, c), 0)) // asked for; sent with the next tick
		synctest.Wait()
		s.OnSeek = func() { go s.Redeliver(func(testkit.Position) bool { return true }) }
		require.NoError(t, c.SeekByTime(time.Time{}))
		msg := testkit.Receive(t, c)
		time.Sleep(4695 * time.Millisecond) // after the tick: the broker has sent the copy
		require.NoError(t, c.Ack(msg))
		time.Sleep(10 * time.Second) // the application is busy
		testkit.ReceiveNothing(t, c, 10*time.Second)
	})
}
