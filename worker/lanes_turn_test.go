package worker_test

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/apache/pulsar-client-go/pulsar"
	"github.com/stretchr/testify/require"
	"golang.org/x/time/rate"

	"github.com/pulsar-redelivery/redelivery"
	"github.com/pulsar-redelivery/redelivery/worker"
)

// A later message of a key has failed and waits for its next try. Then an earlier message of the key comes back from
// another consumer, and is handled first.
func TestEarlierMessageFromAnotherConsumerIsHandledBeforeARetry(t *testing.T) {
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
		r.publishKeyed("a1", "a2", "b1", "a3") // alternately to the other Consumer and to the Worker's
		r.sleep(5 * time.Second)
		other.Close()
		r.sleep(time.Minute)
		require.Equal(r, []string{"0s a2 0", "5s b1 0", "10s a1 0", "10s a2 1", "10s a3 0"}, d.all())
		require.NoError(r, stop())
	})
}

// So many keys fail that a slot always has a message to try again.
func TestNewMessagesAreHandledThoughManyKeysFail(t *testing.T) {
	for name, options := range map[string][]worker.Option{
		"slow": nil, "a rate limit": {worker.WithRateLimit(rate.NewLimiter(10, 1))},
	} {
		t.Run(name, func(t *testing.T) {
			virtually(t, orders, func(r *rig) {
				var good atomic.Int32
				_, stop := r.start(func(_ context.Context, msg pulsar.Message) error {
					if msg.Key() != "bad" && msg.Key() != "" {
						good.Add(1)
						return nil
					}
					if options == nil {
						time.Sleep(1300 * time.Millisecond)
					}
					return errTest
				}, append(options, worker.WithKeyOrder(), worker.WithConcurrency(4))...)
				for i := range 40 {
					r.broker.Publish("orders", &pulsar.ProducerMessage{Key: "bad", OrderingKey: fmt.Sprint(i)})
				}
				r.sleep(time.Second)
				const n = 60
				for i := range n {
					r.broker.Publish("orders", &pulsar.ProducerMessage{Key: "good", OrderingKey: fmt.Sprint("good", i)})
					r.sleep(time.Second)
				}
				r.sleep(30 * time.Second)
				require.EqualValues(r, n, good.Load())
				require.NoError(r, stop())
			}, redelivery.WithNackRedeliveryDelay(time.Second))
		})
	}
}
