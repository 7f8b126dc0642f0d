package worker_test

import (
	"context"
	"testing"
	"time"

	"github.com/apache/pulsar-client-go/pulsar"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pulsar-redelivery/redelivery"
	"github.com/pulsar-redelivery/redelivery/backoff"
	"github.com/pulsar-redelivery/redelivery/worker"
)

// The handlers' contexts do not end before the drain timeout.
func TestResultsDuringADrainSettleTheirMessages(t *testing.T) {
	virtually(t, orders, func(t *rig) {
		w, stop := t.start(func(ctx context.Context, msg pulsar.Message) error {
			time.Sleep(10 * time.Second)
			assert.NoError(t, ctx.Err())
			if string(msg.Payload()) == "bad" {
				return errTest
			}
			return nil
		}, worker.WithConcurrency(2))
		t.publish("good")
		t.publish("bad")
		t.publish("late")
		t.sleep(time.Second)
		began := time.Now()
		require.NoError(t, stop())
		require.Equal(t, 9*time.Second, time.Since(began))
		require.Equal(t, worker.Stats{Succeeded: 1, Failed: 1}, w.Stats())
		require.Contains(t, t.log.String(), "worker: draining\" consumer=virtual subscription=billing in_flight=2 timeout=30s")
		require.Contains(t, t.log.String(), "worker: stopped\" consumer=virtual subscription=billing finished=1 drained=1 left=0 waiting=1 stuck=0 unfinished=0")
	})
}

// After the drain timeout, nil and Permanent still settle a message.
func TestDrainTimeoutLeavesFailedMessagesToTheBroker(t *testing.T) {
	for name, c := range map[string]struct {
		err    error
		panics bool
		stats  worker.Stats
		dead   []string
		left   int
	}{
		"nil":         {nil, false, worker.Stats{Succeeded: 1}, nil, 0},
		"permanent":   {worker.Permanent(errTest), false, worker.Stats{Permanent: 1}, []string{"tea: no luck"}, 0},
		"an error":    {errTest, false, worker.Stats{Left: 1}, nil, 1},
		"retry after": {worker.RetryAfter(0, errTest), false, worker.Stats{Left: 1}, nil, 1},
		"a panic":     {errTest, true, worker.Stats{Left: 1, Panics: 1}, nil, 1},
	} {
		t.Run(name, func(t *testing.T) {
			virtually(t, withDeadLetters(1), func(t *rig) {
				w, stop := t.start(func(ctx context.Context, msg pulsar.Message) error {
					<-ctx.Done()
					assert.ErrorIs(t, context.Cause(ctx), worker.ErrDrainTimeout)
					if c.panics {
						panic(c.err)
					}
					return c.err
				}, worker.WithDrainTimeout(10*time.Second))
				t.publish("tea")
				t.sleep(time.Second)
				began := time.Now()
				require.NoError(t, stop())
				require.Equal(t, 10*time.Second, time.Since(began))
				require.Equal(t, c.stats, w.Stats())
				require.Equal(t, c.dead, t.letters())
				require.Len(t, t.broker.Unacked(), c.left)
			})
		})
	}
}

// permanentAtTheEnd runs a handler that returns a permanent error when the drain timeout ends, and returns the Worker's
// Stats after that.
func (r *rig) permanentAtTheEnd() worker.Stats {
	w, stop := r.start(func(ctx context.Context, msg pulsar.Message) error {
		<-ctx.Done()
		return worker.Permanent(errTest)
	}, worker.WithDrainTimeout(0))
	r.publish("tea")
	r.sleep(time.Second)
	require.NoError(r, stop())
	return w.Stats()
}

func TestSettlingThatHasBegunMaySucceedAfterTheDrainTimeout(t *testing.T) {
	virtually(t, withDeadLetters(9), func(t *rig) {
		t.broker.Send = func(string) error { time.Sleep(4 * time.Second); return nil }
		require.Equal(t, worker.Stats{Permanent: 1}, t.permanentAtTheEnd())
		require.Equal(t, []string{"tea: no luck"}, t.letters())
		require.Empty(t, t.broker.Unacked())
	})
}

// If the dead letter of a permanent error cannot be published after the drain timeout, the message is left to the
// broker, and comes again.
func TestPermanentErrorWhoseLetterFailsAfterTheDrainTimeoutIsLeft(t *testing.T) {
	virtually(t, orders, func(t *rig) {
		require.Equal(t, worker.Stats{Left: 1, Unsettled: 1}, t.permanentAtTheEnd())
	})
}

func TestDrainNamesStuckHandlers(t *testing.T) {
	virtually(t, orders, func(t *rig) {
		free := make(chan struct{})
		w, stop := t.start(func(ctx context.Context, msg pulsar.Message) error {
			if string(msg.Payload()) == "stuck" {
				<-free
			}
			return nil
		}, worker.WithDrainTimeout(10*time.Second), worker.WithConcurrency(2))
		t.publish("fine")
		t.publish("stuck")
		t.sleep(time.Second)
		began := time.Now()
		err := stop()
		require.Equal(t, 15*time.Second, time.Since(began))
		require.EqualError(t, err, "worker: a handler did not return within 5s of the end of its context: message 1:1:0:0")
		require.Equal(t, worker.Stats{InFlight: 1, Stuck: 1, Succeeded: 1}, w.Stats())
		require.Contains(t, t.log.String(), "worker: stopped\" consumer=virtual subscription=billing finished=1 drained=0 left=0 waiting=0 stuck=1 unfinished=0")

		close(free) // the handler succeeds: its message is acknowledged as long as the Consumer is open
		t.sleep(time.Second)
		require.Equal(t, worker.Stats{Succeeded: 2}, w.Stats())
		require.Empty(t, t.broker.Unacked())
	})
}

// If an acknowledgement does not return, Run waits for it no longer than for a handler.
func TestDrainNamesUnsettledMessages(t *testing.T) {
	virtually(t, orders, func(t *rig) {
		free := make(chan struct{})
		t.broker.Ack = func(pulsar.MessageID) error { <-free; return nil }
		_, stop := t.start(succeed, worker.WithDrainTimeout(10*time.Second))
		t.publish("tea")
		t.sleep(time.Second)
		require.EqualError(t, stop(), "worker: handled, but not settled yet: message 1:0:0:0")
		close(free)
	})
}

// A message that a drain leaves to the broker does not time out, however long other handlers take: on its last delivery
// a timeout would make it a dead letter.
func TestLeftMessagesAreNoDeadLetters(t *testing.T) {
	virtually(t, withDeadLetters(1), func(t *rig) {
		free := make(chan struct{})
		w, stop := t.start(func(ctx context.Context, msg pulsar.Message) error {
			if string(msg.Payload()) == "stuck" {
				<-free
			}
			<-ctx.Done()
			return ctx.Err()
		}, worker.WithDrainTimeout(time.Second), worker.WithConcurrency(2), worker.WithTimeout(time.Hour))
		t.publish("tea")
		t.publish("stuck")
		t.sleep(time.Second)
		require.ErrorContains(t, stop(), "did not return within 5s")
		require.Equal(t, worker.Stats{InFlight: 1, Stuck: 1, Left: 1}, w.Stats())
		t.consumer.Close()
		close(free)
		t.sleep(time.Hour)
		require.Empty(t, t.letters())
		require.Len(t, t.broker.Unacked(), 2)
	}, redelivery.WithAckTimeout(3*time.Second))
}

func TestPolicyMayCallStatsWhileAMessageIsLeft(t *testing.T) {
	var w *worker.Worker
	policy := backoff.Func(func(uint32) time.Duration {
		if w != nil {
			_ = w.Stats()
		}
		return time.Second
	})
	virtually(t, orders, func(t *rig) {
		t.publish("a")
		var stop func() error
		w, stop = t.start(func(ctx context.Context, _ pulsar.Message) error {
			<-ctx.Done()
			return errTest
		}, worker.WithDrainTimeout(time.Second))
		t.sleep(time.Second)
		require.NoError(t, stop())
		require.EqualValues(t, 1, w.Stats().Left)
	}, redelivery.WithNackRedeliveryBackoff(policy))
}
