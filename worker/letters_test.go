package worker_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/apache/pulsar-client-go/pulsar"
	"github.com/stretchr/testify/require"

	"github.com/pulsar-redelivery/redelivery"
	"github.com/pulsar-redelivery/redelivery/worker"
)

// Dead letters of a batch do not share one limit of time: each message is handled once, and published once.
func TestManyDeadLettersOfABatch(t *testing.T) {
	for name, failure := range map[string]error{"permanent": worker.Permanent(errTest), "the last delivery": errTest} {
		t.Run(name, func(t *testing.T) {
			virtually(t, withDeadLetters(1), func(t *rig) {
				t.broker.Send = func(string) error {
					time.Sleep(400 * time.Millisecond)
					return nil
				}
				const n = 200
				for i := range n {
					t.publish(fmt.Sprint(i))
				}
				var handled handling
				w, err := worker.NewBatch(t.consumer, func(_ context.Context, msgs []pulsar.Message) error {
					handled.add(msgs...)
					failed := worker.BatchError{}
					for i := range msgs {
						failed[i] = failure
					}
					return failed
				}, worker.Batch{MaxMessages: n}, worker.WithLogger(t.logger), worker.WithConcurrency(1))
				require.NoError(t, err)
				stop := t.run(w)
				t.sleep(time.Hour)
				require.NoError(t, stop())
				require.Len(t, handled.times, n)
				for payload, times := range handled.times {
					require.Equal(t, 1, times, payload)
				}
				require.Len(t, t.letters(), n)
				require.Empty(t, t.broker.Unacked())
				require.Zero(t, w.Stats().Unsettled)
			}, redelivery.WithNackRedeliveryDelay(time.Minute))
		})
	}
}
