package worker_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/apache/pulsar-client-go/pulsar"
	"github.com/stretchr/testify/require"

	"github.com/pulsar-redelivery/redelivery"
	"github.com/pulsar-redelivery/redelivery/backoff"
	"github.com/pulsar-redelivery/redelivery/worker"
)

// failBad fails messages whose payload begins with bad.
func failBad(_ context.Context, msg pulsar.Message) error {
	if strings.HasPrefix(string(msg.Payload()), "bad") {
		return errTest
	}
	return nil
}

// Messages that always fail and fill the window, and all slots, become dead letters. Those behind them are reached.
func TestPoisonFillsTheWindow(t *testing.T) {
	for _, concurrency := range []int{1, 8} {
		t.Run(fmt.Sprint(concurrency), func(t *testing.T) {
			virtually(t, withDeadLetters(3), func(t *rig) {
				for n := range 30 {
					t.publish(fmt.Sprint("bad", n))
				}
				for n := range 600 {
					t.publish(fmt.Sprint("good", n))
				}
				w, stop := t.start(failBad, worker.WithConcurrency(concurrency),
					worker.WithPauseOnFailure(20, 0.5, backoff.Exponential{Min: time.Second, Max: 10 * time.Second}))
				t.sleep(10 * time.Minute)
				require.EqualValues(t, 600, w.Stats().Succeeded)
				t.sleep(50 * time.Minute)
				require.Len(t, t.letters(), 30)
				require.NoError(t, stop())
				require.Empty(t, t.broker.Unacked())
			}, redelivery.WithAckTimeout(30*time.Second))
		})
	}
}

// On a topic where little happens one message that fails again and again is no outage.
func TestOnePoisonIsNoOutage(t *testing.T) {
	virtually(t, withDeadLetters(40), func(t *rig) {
		for n := range 20 {
			t.publish(fmt.Sprint("good", n))
		}
		t.publish("bad")
		w, stop := t.start(failBad, worker.WithConcurrency(1),
			worker.WithPauseOnFailure(20, 0.5, backoff.Exponential{Min: time.Second, Max: 10 * time.Second}))
		t.sleep(time.Hour)
		require.Equal(t, []string{"bad: no luck"}, t.letters())
		require.NotContains(t, t.log.String(), "most messages fail")
		require.NoError(t, stop())
		require.EqualValues(t, 40, w.Stats().Failed)
	})
}

// Each probe is of another message in turn. The third of a message counts as an attempt, and then a new one is tried.
func TestProbesInTurn(t *testing.T) {
	virtually(t, withDeadLetters(9), func(t *rig) {
		for _, payload := range []string{"a", "b", "c"} {
			t.publish(payload)
		}
		calls := newCalls()
		w, stop := t.start(func(_ context.Context, msg pulsar.Message) error {
			calls.note(msg)
			time.Sleep(time.Millisecond)
			return errTest
		}, worker.WithConcurrency(2), worker.WithPauseOnFailure(1, 1, backoff.Fixed(time.Second)))
		t.sleep(7500 * time.Millisecond)
		require.ElementsMatch(t, []string{"a", "b"}, calls.what[:2])
		for n := 2; n < 8; n += 2 {
			require.ElementsMatch(t, []string{"a", "b"}, calls.what[n:n+2])
		}
		require.Equal(t, "c", calls.what[8])
		require.EqualValues(t, 2, w.Stats().Failed)
		require.NoError(t, stop())
	}, redelivery.WithNackRedeliveryDelay(time.Hour))
}
