package worker_test

import (
	"context"
	"testing"
	"time"

	"github.com/apache/pulsar-client-go/pulsar"
	"github.com/stretchr/testify/require"

	"github.com/pulsar-redelivery/redelivery"
	"github.com/pulsar-redelivery/redelivery/worker"
)

// A message that was another consumer's goes before the later one of its key that failed, and waits to be tried again.
func TestEarlierMessageTakesTheTurn(t *testing.T) {
	virtually(t, orders, func(r *rig) {
		other, err := redelivery.Subscribe(r.broker, orders)
		require.NoError(r, err)
		d := &diary{began: time.Now()}
		_, stop := r.start(func(_ context.Context, msg pulsar.Message) error {
			d.note(msg)
			if string(msg.Payload()) == "a2" && msg.RedeliveryCount() == 0 {
				return worker.RetryAfter(10*time.Second, errTest)
			}
			return nil
		}, worker.WithKeyOrder(), worker.WithConcurrency(2))
		r.publishKeyed("a1", "a2", "b1", "a3") // in turn to the other and to the Worker's
		r.sleep(5 * time.Second)
		other.Close()
		r.sleep(time.Minute)
		require.Equal(r, []string{"0s a2 0", "5s b1 0", "10s a1 0", "10s a2 1", "10s a3 0"}, d.all())
		require.NoError(r, stop())
	})
}
