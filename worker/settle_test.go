package worker_test

import (
	"context"
	"fmt"
	"io"
	"testing"
	"testing/synctest"
	"time"

	"github.com/apache/pulsar-client-go/pulsar"
	"github.com/stretchr/testify/require"

	"github.com/pulsar-redelivery/redelivery"
	"github.com/pulsar-redelivery/redelivery/worker"
)

// failing returns a function for Broker.Ack that fails until a time.
func failing(until time.Time) func(pulsar.MessageID) error {
	return func(pulsar.MessageID) error {
		if time.Now().Before(until) {
			return errTest
		}
		return nil
	}
}

func TestFailedAckIsTriedAgain(t *testing.T) {
	virtually(t, orders, func(t *rig) {
		t.broker.Ack = failing(time.Now().Add(time.Second))
		calls := newCalls()
		w, stop := t.start(func(_ context.Context, msg pulsar.Message) error { calls.note(msg); return nil })
		t.publish("tea")
		t.sleep(time.Second)
		require.Equal(t, worker.Stats{InFlight: 1, Unsettled: 4}, w.Stats()) // failed at 0, 100, 300 and 700 ms
		t.sleep(time.Hour)
		require.Equal(t, worker.Stats{Succeeded: 1, Unsettled: 4}, w.Stats())
		require.NoError(t, stop())
		require.Len(t, calls.times(), 1)
	})
}

func TestFailedAckIsTriedUntilTheDrainEnds(t *testing.T) {
	virtually(t, orders, func(t *rig) {
		t.broker.Ack = failing(time.Now().Add(time.Hour))
		w, stop := t.start(succeed, worker.WithDrainTimeout(10*time.Second))
		t.publish("tea")
		t.sleep(30 * time.Second)
		stopping := time.Now()
		require.NoError(t, stop())
		require.Equal(t, 10*time.Second, time.Since(stopping))
		require.EqualValues(t, 1, w.Stats().Left)
		require.Contains(t, t.log.String(), "it was handled, but could not be acknowledged")
		require.Len(t, t.broker.Unacked(), 1)
	})
}

func TestFailedDeadLetterIsNacked(t *testing.T) {
	virtually(t, withDeadLetters(9), func(t *rig) {
		began := time.Now()
		t.broker.Send = func(string) error {
			if time.Since(began) < time.Second {
				return errTest
			}
			return nil
		}
		calls := newCalls()
		w, stop := t.start(func(_ context.Context, msg pulsar.Message) error { calls.note(msg); return worker.Permanent(io.EOF) })
		t.publish("tea")
		t.sleep(time.Hour)
		require.NoError(t, stop())
		require.Equal(t, []time.Duration{0, time.Minute}, calls.times())
		require.Equal(t, worker.Stats{Failed: 1, Permanent: 1, Unsettled: 1}, w.Stats())
		require.Equal(t, []string{"tea: EOF"}, t.letters())
	})
}

// The message cannot be acknowledged when its dead letter is published.
func TestPublishedDeadLetterIsAcknowledgedLaterNotPublishedAgain(t *testing.T) {
	virtually(t, withDeadLetters(9), func(t *rig) {
		t.broker.Ack = failing(time.Now().Add(time.Second))
		w, stop := t.start(func(context.Context, pulsar.Message) error { return worker.Permanent(io.EOF) })
		t.publish("tea")
		t.sleep(time.Hour)
		require.NoError(t, stop())
		require.Equal(t, []string{"tea: EOF"}, t.letters())
		require.Empty(t, t.broker.Unacked())
		require.Equal(t, worker.Stats{Permanent: 1, Unsettled: 5}, w.Stats())
	})
}

func TestLostConsumerEndsRun(t *testing.T) {
	for name, lose := range map[string]func(*rig){
		"gave up": func(t *rig) { t.broker.GiveUp(errTest) },
		"closed":  func(t *rig) { t.consumer.Close() },
	} {
		t.Run(name, func(t *testing.T) {
			virtually(t, orders, func(t *rig) {
				returned := make(chan error, 1)
				w, err := worker.New(t.consumer, func(ctx context.Context, _ pulsar.Message) error {
					time.Sleep(time.Second)
					return nil
				}, worker.WithLogger(t.logger), worker.WithConcurrency(2))
				require.NoError(t, err)
				go func() { returned <- w.Run(context.Background()) }()
				t.publish("tea") // in its handler when the Consumer is lost
				synctest.Wait()
				began := time.Now()
				lose(t)
				err = <-returned
				require.ErrorContains(t, err, "worker: the consumer is lost")
				require.Equal(t, time.Second, time.Since(began).Truncate(100*time.Millisecond))
				require.EqualValues(t, 1, w.Stats().Left)
			})
		})
	}
}

// No slot receives and notices the loss, since all slots try to acknowledge.
func TestLostConsumerEndsRunWhileAcksFail(t *testing.T) {
	virtually(t, orders, func(t *rig) {
		t.broker.Ack = failing(time.Now().Add(time.Hour))
		returned := make(chan error, 1)
		w, err := worker.New(t.consumer, succeed, worker.WithLogger(t.logger), worker.WithConcurrency(1))
		require.NoError(t, err)
		go func() { returned <- w.Run(context.Background()) }()
		t.publish("tea")
		t.sleep(time.Second)
		t.broker.GiveUp(errTest)
		require.ErrorIs(t, <-returned, redelivery.ErrClosed)
	})
}

// The dead letter cannot be published when the last delivery fails, or when the message is too old. Later it is
// published with the handler's error, also after RetryAfter.
func TestDeadLetterThatIsPublishedLaterKeepsItsReason(t *testing.T) {
	for name, err := range map[string]error{"an error": errTest, "RetryAfter": worker.RetryAfter(time.Hour, errTest)} {
		for _, old := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, old=%v", name, old), func(t *testing.T) {
				virtually(t, withDeadLetters(1), func(t *rig) {
					began := time.Now()
					t.broker.Send = func(string) error {
						if time.Since(began) < 10*time.Second {
							return io.EOF
						}
						return nil
					}
					options, want := []worker.Option{worker.WithConcurrency(1)}, "tea: no luck"
					if old {
						options, want = append(options, worker.WithMaxAge(time.Millisecond)), "tea: older than 1ms: no luck"
					}
					_, stop := t.start(func(context.Context, pulsar.Message) error { time.Sleep(time.Second); return err }, options...)
					t.publish("tea")
					t.sleep(3 * time.Hour)
					require.NoError(t, stop())
					require.Equal(t, []string{want}, t.letters())
				})
			})
		}
	}
}
