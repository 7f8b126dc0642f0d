package worker_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/apache/pulsar-client-go/pulsar"
	"github.com/stretchr/testify/require"

	"github.com/pulsar-redelivery/redelivery"
	"github.com/pulsar-redelivery/redelivery/attempts"
	"github.com/pulsar-redelivery/redelivery/internal/waittest"
	"github.com/pulsar-redelivery/redelivery/pulsartest"
	"github.com/pulsar-redelivery/redelivery/worker"
)

// If the log said that a lost message is in a handler here, the message's new consumer would wait until this consumer
// ends.
func TestLostMessageIsNotRecordedAsInAHandler(t *testing.T) {
	t.Parallel()
	for _, more := range []bool{false, true} { // another message is in the same batch, and not lost
		t.Run(fmt.Sprint("another message ", more), func(t *testing.T) {
			t.Parallel()
			broker := pulsartest.NewServer(t)
			broker.Publish(t, "bills", &pulsar.ProducerMessage{Payload: []byte("gas")})
			opts := withDeadLetters(9)
			opts.Topic, opts.Topics = "", []string{"orders", "bills"}
			opts.SubscriptionInitialPosition = pulsar.SubscriptionPositionEarliest
			c, err := redelivery.Subscribe(broker.Client(t), opts, redelivery.WithAttemptLog(redelivery.AttemptLog{Topic: "attempts"}),
				redelivery.WithLogger(quiet))
			require.NoError(t, err)
			defer c.Close()
			handled, goOn := make(chan string, 10), make(chan struct{})
			w, err := worker.NewBatch(c, func(_ context.Context, msgs []pulsar.Message) error {
				handled <- string(msgs[0].Payload())
				<-goOn
				return nil
			}, worker.Batch{MaxMessages: 3, MaxWait: time.Second}, worker.WithConcurrency(1), worker.WithCrashLimit(3), worker.WithLogger(quiet))
			require.NoError(t, err)
			ctx, stop := context.WithCancel(t.Context())
			ended := make(chan error, 1)
			go func() { ended <- w.Run(ctx) }()
			require.Equal(t, "gas", waittest.Next(t, handled))
			id := broker.Publish(t, "orders", &pulsar.ProducerMessage{Payload: []byte("tea")})[0]
			goOn <- struct{}{} // the Worker collects another batch
			time.Sleep(300 * time.Millisecond)
			broker.CloseConsumers("bills", opts.SubscriptionName) // the Consumer does not know which connection was lost
			if more {
				time.Sleep(300 * time.Millisecond)
				broker.Publish(t, "bills", &pulsar.ProducerMessage{Payload: []byte("water")})
				require.Equal(t, "water", waittest.Next(t, handled))
			}
			require.Eventually(t, func() bool { return w.Stats().Lost == 1 }, 10*time.Second, time.Millisecond)
			key := attempts.Key{Topic: "persistent://public/default/orders", Ledger: id.Ledger, Entry: id.Entry}
			require.Eventually(t, func() bool {
				r, _ := c.AttemptLog().Find(key)
				return r.Begun == 0
			}, 500*time.Millisecond, time.Millisecond)
			close(goOn)
			broker.Await(t, "orders", opts.SubscriptionName, 30*time.Second, func(s pulsartest.Subscription) bool { return s.Backlog == 0 })
			stop()
			require.NoError(t, waittest.Next(t, ended))
		})
	}
}
