package worker_test

import (
	"context"
	"strings"
	"sync"
	"sync/atomic"
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

// Messages that were in handlers when a process crashed are handled one at a time. Messages that still wait for their
// turn when the drain timeout is over are left to the broker.
func TestSuspectsThatWaitAreLeftToTheBrokerAtADrain(t *testing.T) {
	t.Parallel()
	broker := pulsartest.NewServer(t)
	ids := broker.Publish(t, "orders", &pulsar.ProducerMessage{Payload: []byte("a")}, &pulsar.ProducerMessage{Payload: []byte("b")},
		&pulsar.ProducerMessage{Payload: []byte("c")})
	for _, id := range ids {
		crashWith(t, broker, attempts.Key{Topic: "persistent://public/default/orders", Ledger: id.Ledger, Entry: id.Entry})
	}
	opts := withDeadLetters(9)
	opts.SubscriptionInitialPosition = pulsar.SubscriptionPositionEarliest
	c, err := redelivery.Subscribe(broker.Client(t), opts, redelivery.WithAttemptLog(redelivery.AttemptLog{}), redelivery.WithLogger(quiet))
	require.NoError(t, err)
	defer c.Close()
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	var mu sync.Mutex
	var active, most, late int
	w, err := worker.New(c, func(ctx context.Context, _ pulsar.Message) error {
		mu.Lock()
		active++
		if ctx.Err() != nil {
			late++
		}
		most = max(most, active)
		mu.Unlock()
		time.AfterFunc(200*time.Millisecond, stop) // the other messages wait by then
		time.Sleep(2 * time.Second)
		mu.Lock()
		defer mu.Unlock()
		active--
		return nil
	}, worker.WithCrashLimit(3), worker.WithConcurrency(3), worker.WithDrainTimeout(500*time.Millisecond), worker.WithLogger(quiet))
	require.NoError(t, err)
	require.NoError(t, w.Run(ctx))
	mu.Lock()
	defer mu.Unlock()
	require.Equal(t, 1, most)
	require.Zero(t, late)
	require.EqualValues(t, 1, w.Stats().Succeeded)
}

// Writing a message's record takes longer than its ack timeout. The message is still handled only once, and makes no
// dead letter.
func TestSlowLogCausesNoAckTimeout(t *testing.T) {
	t.Parallel()
	broker := pulsartest.NewServer(t)
	broker.Publish(t, "orders", &pulsar.ProducerMessage{Payload: []byte("tea")})
	opts := withDeadLetters(1)
	opts.SubscriptionInitialPosition = pulsar.SubscriptionPositionEarliest
	c, err := redelivery.Subscribe(broker.Client(t), opts, redelivery.WithAttemptLog(redelivery.AttemptLog{}), redelivery.WithAckTimeout(3*time.Second),
		redelivery.WithLogger(quiet))
	require.NoError(t, err)
	defer c.Close()
	broker.SetHook(func(cmd pulsartest.Command) pulsartest.Verdict {
		if cmd.Type == "SEND" && strings.HasSuffix(cmd.Topic, "-ATTEMPTS") {
			return pulsartest.Drop
		}
		return pulsartest.Pass
	})
	var handled atomic.Int32
	w, err := worker.New(c, func(context.Context, pulsar.Message) error {
		handled.Add(1)
		return nil
	}, worker.WithCrashLimit(3), worker.WithConcurrency(2), worker.WithLogger(quiet))
	require.NoError(t, err)
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- w.Run(ctx) }()
	broker.Await(t, "orders", "billing", 30*time.Second, func(s pulsartest.Subscription) bool { return s.Backlog == 0 })
	require.Eventually(t, func() bool { return handled.Load() > 0 }, 30*time.Second, 10*time.Millisecond)
	stop()
	require.NoError(t, waittest.Next(t, ended))
	require.EqualValues(t, 1, handled.Load())
	require.Empty(t, broker.Messages("orders-billing-DLQ"))
}
