package suite

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/apache/pulsar-client-go/pulsar"
	"github.com/stretchr/testify/require"

	"github.com/pulsar-redelivery/redelivery/test/testkit"
)

// A handler that had a message for the second time fails on it just after a Seek.
func TestALateNackAfterASeek(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, inner := testkit.SubscribeFake(t, pulsar.Exclusive)
		inner.Deliver(1)
		first := testkit.Receive(t, c)
		require.NoError(t, c.NackWithDelay(first, time.Second))
		second := testkit.Receive(t, c)
		require.NoError(t, c.Seek(pulsar.EarliestMessageID()))
		c.Nack(second)
		for range 5 {
			inner.Deliver(1)
			_, err := testkit.ReceiveWithin(c, time.Hour)
			if err == nil {
				return
			}
		}
		t.Error("lost")
	})
}
