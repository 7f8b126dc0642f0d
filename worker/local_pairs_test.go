package worker_test

import (
	"context"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/apache/pulsar-client-go/pulsar"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pulsar-redelivery/redelivery"
	"github.com/pulsar-redelivery/redelivery/backoff"
	"github.com/pulsar-redelivery/redelivery/worker"
)

// The ack timeout of the message a1 ends at 5 s, while its handler is at work. All slots are busy until 7 s. The
// handler fails at 6 s, and a1 waits for its local retry at 16 s. The redelivery of a1 is not handled, neither during
// the local retry nor after it.
func TestRedeliveryIsNotHandledBesideOrAfterALocalRetry(t *testing.T) {
	for _, kind := range []pulsar.SubscriptionType{pulsar.Shared, pulsar.Exclusive} {
		for order, options := range map[string][]worker.Option{"in any order": nil, "in key order": {worker.WithKeyOrder()}} {
			t.Run(fmt.Sprint(kind, " ", order), func(t *testing.T) {
				opts := orders
				opts.Type = kind
				virtually(t, opts, func(t *rig) {
					var active atomic.Int32
					calls := newCalls()
					w, stop := t.start(func(_ context.Context, msg pulsar.Message) error {
						if string(msg.Payload()) != "a1" {
							time.Sleep(3500 * time.Millisecond)
							return nil
						}
						assert.EqualValues(t, 1, active.Add(1))
						defer active.Add(-1)
						if calls.note(msg) == 1 {
							time.Sleep(6 * time.Second)
							return errTest
						}
						time.Sleep(4500 * time.Millisecond)
						return nil
					}, append(options, worker.WithConcurrency(2), worker.WithLocalRetries(3, backoff.Fixed(10*time.Second)))...)
					t.publishKeyed("a1", "b1")
					t.sleep(3 * time.Second)
					t.publishKeyed("b2") // it is handled from 3.5 s to 7 s
					t.sleep(time.Hour)
					require.NoError(t, stop())
					require.Len(t, calls.times(), 2)
					require.EqualValues(t, 3, w.Stats().Succeeded)
					require.Empty(t, t.broker.Unacked())
				}, redelivery.WithAckTimeout(5*time.Second))
			})
		}
	}
}

// After the local retries the paused Worker gives back its other messages.
func TestMessageThatWaitsForALocalRetryIsHandledDuringAPause(t *testing.T) {
	virtually(t, orders, func(t *rig) {
		calls := newCalls()
		w, stop := t.start(func(_ context.Context, msg pulsar.Message) error {
			calls.note(msg)
			return errTest
		}, worker.WithConcurrency(1), worker.WithLocalRetries(3, backoff.Fixed(time.Second)))
		t.publish("a", "b", "c")
		t.sleep(500 * time.Millisecond)
		w.Pause()
		t.sleep(time.Hour)
		assert.Equal(t, []string{"a", "a", "a", "a"}, calls.what)
		assert.Zero(t, t.broker.Consumers())
		require.NoError(t, stop())
	})
}

// An outage puts two messages aside; one of them waited for its last local retry. If a batch of both fails as a whole,
// it is handled again and halved, so that the good message does not become a dead letter.
func TestBatchThatAnOutagePutAsideIsHalvedAfterItsLocalRetries(t *testing.T) {
	virtually(t, exclusive(1), func(t *rig) {
		began := time.Now()
		w, stop := t.startBatch(worker.Batch{MaxMessages: 2, MaxWait: time.Second}, func(_ context.Context, msgs []pulsar.Message) error {
			switch got := text(msgs); {
			case got == "good" && time.Since(began) < 5*time.Second: // it waits for its local retry until 11 s
				return errTest
			case got == "bad" && time.Since(began) < 10*time.Second: // the outage begins at 6 s
				return worker.RetryAfter(0, errTest)
			case strings.Contains(got, "bad"):
				return errTest
			}
			return nil
		}, worker.WithConcurrency(2), worker.WithLocalRetries(1, backoff.Fixed(10*time.Second)), worker.WithPauseOnFailure(1, 1, backoff.Fixed(20*time.Second)))
		t.publish("good")
		t.sleep(5 * time.Second)
		t.publish("bad")
		t.sleep(13 * time.Second)
		require.True(t, w.Stats().Outage)
		t.publish("fresh") // it is tried at 26 s, and ends the outage
		t.sleep(time.Hour)
		require.NoError(t, stop())
		require.Equal(t, []string{"bad: no luck"}, t.letters())
		require.EqualValues(t, 2, w.Stats().Succeeded)
		require.Empty(t, t.broker.Unacked())
	})
}
