package worker_test

import (
	"testing"
	"time"

	"github.com/apache/pulsar-client-go/pulsar"
	"github.com/stretchr/testify/require"

	"github.com/pulsar-redelivery/redelivery/worker"
)

// An acknowledgement that the broker refuses for ever does not keep its slot: the message is left, and others are handled.
func TestRefusedAckIsGivenUp(t *testing.T) {
	for name, option := range map[string]worker.Option{"each by itself": worker.WithConcurrency(1), "by key": worker.WithKeyOrder()} {
		t.Run(name, func(t *testing.T) {
			virtually(t, orders, func(t *rig) {
				t.broker.Ack = func(id pulsar.MessageID) error {
					if id.EntryID() == 0 {
						return errTest
					}
					return nil
				}
				w, stop := t.start(succeed, option, worker.WithConcurrency(1))
				t.publishKeyed("a1", "a2")
				t.sleep(2 * time.Minute)
				require.EqualValues(t, 1, w.Stats().Succeeded)
				require.EqualValues(t, 1, w.Stats().Left)
				require.Zero(t, w.Stats().InFlight)
				require.Positive(t, w.Stats().Unsettled)
				require.Contains(t, t.log.String(), "it was handled, but could not be acknowledged")
				require.NoError(t, stop())
				require.Len(t, t.broker.Unacked(), 1)
			})
		})
	}
}
