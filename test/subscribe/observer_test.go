package subscribe

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/apache/pulsar-client-go/pulsar"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pulsar-redelivery/redelivery"
	"github.com/pulsar-redelivery/redelivery/test/testkit"
)

// observed records the events of an Observer. Any number of goroutines may use it.
type observed struct {
	mu        sync.Mutex
	events    []string
	delivered []redelivery.Delivered
	settled   []redelivery.Settled
}

func (x *observed) note(format string, args ...any) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.events = append(x.events, fmt.Sprintf(format, args...))
}

// observer returns an Observer that records all events except requests, since the broker may answer a request before
// the Observer gets it.
func (x *observed) observer() redelivery.Observer {
	event := func(what string) func(redelivery.Event) {
		return func(redelivery.Event) { x.note("%s", what) }
	}
	return redelivery.Observer{
		Delivered: func(e redelivery.Delivered) {
			x.note("delivered %d %v", e.Count, e.Cause)
			x.mu.Lock()
			defer x.mu.Unlock()
			x.delivered = append(x.delivered, e)
		},
		Settled: func(e redelivery.Settled) {
			what := fmt.Sprintf("%v after %d", e.Outcome, e.Attempts)
			if e.Reason != "" {
				what += ": " + string(e.Reason) + ": " + e.Why.Error()
			}
			if e.Err != nil {
				what += " failed"
			}
			x.note("%s", what)
			x.mu.Lock()
			defer x.mu.Unlock()
			x.settled = append(x.settled, e)
		},
		Buffered: event("buffered"), Dropped: event("dropped"), Swallowed: event("swallowed"),
		Failed: func(e redelivery.Failed) { x.note("failed %s: %v", e.Operation, e.Err) },
	}
}

// await waits until the Observer has got the wanted events, in any order: several goroutines report events.
func (x *observed) await(t testing.TB, want ...string) {
	t.Helper()
	assert.EventuallyWithT(t, func(t *assert.CollectT) {
		x.mu.Lock()
		defer x.mu.Unlock()
		assert.ElementsMatch(t, want, x.events)
	}, 30*time.Second, 10*time.Millisecond)
}

func TestObserverSeesEachOutcome(t *testing.T) {
	t.Parallel()
	ctx, boom := context.Background(), errors.New("boom")
	dead := func(o *pulsar.ConsumerOptions) { o.DLQ = &pulsar.DLQPolicy{MaxDeliveries: 2} }
	retries := func(o *pulsar.ConsumerOptions) {
		o.RetryEnable, o.DLQ = true, &pulsar.DLQPolicy{MaxDeliveries: 1}
	}
	longRetries := func(o *pulsar.ConsumerOptions) {
		o.RetryEnable, o.DLQ = true, &pulsar.DLQPolicy{MaxDeliveries: 9}
	}
	batchAcks := func(o *pulsar.ConsumerOptions) { o.Type = pulsar.Exclusive }
	for name, c := range map[string]struct {
		change  func(*pulsar.ConsumerOptions)
		options []redelivery.Option
		n       int // messages
		act     func(t *testing.T, c *redelivery.Consumer)
		want    []string
	}{
		"ack": {act: func(t *testing.T, c *redelivery.Consumer) {
			msg := testkit.Receive(t, c)
			require.NoError(t, c.Ack(msg))
			require.NoError(t, c.Ack(msg)) // already settled
		}, want: []string{"delivered 0 ", "acked after 1"}},
		"ack by id": {act: func(t *testing.T, c *redelivery.Consumer) {
			require.NoError(t, c.AckID(testkit.Receive(t, c).ID()))
		}, want: []string{"delivered 0 ", "acked after 1"}},
		"ack a list": {n: 2, act: func(t *testing.T, c *redelivery.Consumer) {
			require.NoError(t, c.AckIDList([]pulsar.MessageID{testkit.Receive(t, c).ID(), testkit.Receive(t, c).ID()}))
		}, want: []string{"delivered 0 ", "delivered 0 ", "acked after 1", "acked after 1"}},
		"ack cumulatively": {n: 2, change: batchAcks, act: func(t *testing.T, c *redelivery.Consumer) {
			testkit.Receive(t, c)
			require.NoError(t, c.AckCumulative(testkit.Receive(t, c)))
		}, want: []string{"delivered 0 ", "delivered 0 ", "acked after 1", "acked after 1"}},
		"nack": {act: func(t *testing.T, c *redelivery.Consumer) {
			msg := testkit.Receive(t, c)
			c.Nack(msg)
			c.Nack(msg) // a second nack, which has no effect
			require.NoError(t, c.Ack(testkit.Receive(t, c)))
		}, want: []string{"delivered 0 ", "nacked after 1", "delivered 1 nack", "acked after 2"}},
		"ack while it waits": {act: func(t *testing.T, c *redelivery.Consumer) {
			msg := testkit.Receive(t, c)
			require.NoError(t, c.NackWithDelay(msg, time.Hour))
			require.NoError(t, c.Ack(msg))
		}, want: []string{"delivered 0 ", "nacked after 1", "acked after 1"}},
		"snooze": {act: func(t *testing.T, c *redelivery.Consumer) {
			require.NoError(t, c.Snooze(testkit.Receive(t, c), 20*time.Millisecond))
			require.NoError(t, c.Ack(testkit.Receive(t, c)))
		}, want: []string{"delivered 0 ", "snoozed after 1", "delivered 0 nack", "acked after 1"}},
		"nack by id": {act: func(t *testing.T, c *redelivery.Consumer) {
			c.NackID(testkit.Receive(t, c).ID())
			require.NoError(t, c.Ack(testkit.Receive(t, c)))
		}, want: []string{"delivered 0 ", "nacked after 1", "delivered 1 nack", "acked after 2"}},
		"timeout": {options: []redelivery.Option{redelivery.WithAckTimeout(50 * time.Millisecond)}, act: func(t *testing.T, c *redelivery.Consumer) {
			testkit.Receive(t, c)
			require.NoError(t, c.Ack(testkit.Receive(t, c)))
		}, want: []string{"delivered 0 ", "timed_out after 1", "delivered 1 timeout", "acked after 2"}},
		"last nack": {change: dead, act: func(t *testing.T, c *redelivery.Consumer) {
			c.Nack(testkit.Receive(t, c))
			require.NoError(t, c.NackWithReason(testkit.Receive(t, c), boom))
		}, want: []string{"delivered 0 ", "nacked after 1", "delivered 1 nack",
			"dead_lettered after 2: max_deliveries: boom"}},
		"last timeout": {change: dead, options: []redelivery.Option{redelivery.WithAckTimeout(50 * time.Millisecond)},
			act: func(t *testing.T, c *redelivery.Consumer) {
				testkit.Receive(t, c)
				testkit.Receive(t, c)
			}, want: []string{"delivered 0 ", "timed_out after 1", "delivered 1 timeout",
				"dead_lettered after 2: max_deliveries: delivered 2 times and not acknowledged"}},
		"dead letter": {change: dead, act: func(t *testing.T, c *redelivery.Consumer) {
			require.NoError(t, c.DeadLetter(ctx, testkit.Receive(t, c), boom))
		}, want: []string{"delivered 0 ", "dead_lettered after 1: explicit: boom"}},
		"reconsume": {change: retries, act: func(t *testing.T, c *redelivery.Consumer) {
			require.NoError(t, c.ReconsumeLaterAfter(ctx, testkit.Receive(t, c), 20*time.Millisecond, nil))
			require.NoError(t, c.ReconsumeLaterAfter(ctx, testkit.Receive(t, c), 20*time.Millisecond, nil))
		}, want: []string{"delivered 0 ", "reconsumed after 1", "delivered 0 retry_topic",
			"dead_lettered after 2: max_deliveries: reconsumed 1 times"}},
		"nack to the retry topic": {change: longRetries, options: []redelivery.Option{redelivery.WithNackRetryTopic(25 * time.Millisecond)},
			act: func(t *testing.T, c *redelivery.Consumer) {
				// a busy computer may need seconds to move the message
				require.NoError(t, c.NackWithDelay(testkit.Receive(t, c), 5*time.Second))
				require.NoError(t, c.Ack(testkit.Receive(t, c)))
			}, want: []string{"delivered 0 ", "reconsumed after 1", "delivered 1 retry_topic", "acked after 2"}},
		"failures": {act: func(t *testing.T, c *redelivery.Consumer) {
			c.Nack(nil)
			c.ReconsumeLater(nil, 0)
			msg := testkit.Receive(t, c)
			c.ReconsumeLater(msg, 0) // there is no retry topic
			require.NoError(t, c.Ack(msg))
		}, want: []string{"delivered 0 ", "nacked after 1", "acked after 1",
			"failed nack: redelivery: message is nil, want one that was received",
			"failed reconsume: redelivery: message is nil, want one that was received", "failed reconsume: " + redelivery.ErrNoRetryTopic.Error()}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := testkit.NewBroker(t)
			topic := b.NewTopic(0)
			opts := b.Options(topic, pulsar.Shared)
			if c.change != nil {
				c.change(&opts)
			}
			var x observed
			delay := 20 * time.Millisecond
			if name == "failures" {
				delay = time.Hour
			}
			consumer := b.Subscribe(opts, append(c.options, redelivery.WithNackRedeliveryDelay(delay),
				redelivery.WithObserver(x.observer()))...)
			b.Send(topic, max(1, c.n), false)
			c.act(t, consumer)
			// A retry that the broker sends early is buffered.
			x.mu.Lock()
			early := 0
			for _, e := range x.events {
				if e == "buffered" {
					early++
				}
			}
			x.mu.Unlock()
			for range early {
				c.want = append(c.want, "buffered")
			}
			x.await(t, c.want...)
			for _, e := range x.delivered {
				assert.Equal(t, consumer, e.Consumer)
				assert.Contains(t, e.Topic, topic)
				assert.Equal(t, testkit.Subscription, e.Subscription)
				assert.NotNil(t, e.ID)
				assert.NotNil(t, e.Message)
				assert.GreaterOrEqual(t, e.Lateness, time.Duration(0))
				assert.Equal(t, e.Cause == "", e.Due.IsZero())
			}
			for _, e := range x.settled {
				assert.Contains(t, e.Topic, topic)
				assert.Positive(t, e.Duration)
				assert.Less(t, e.Duration, time.Minute)
			}
		})
	}
}

func TestObserverTimesAreExact(t *testing.T) {
	var x observed
	testkit.WrapFake(t, func(t *testing.T, c *redelivery.Consumer, inner *testkit.Fake, _ *bytes.Buffer) {
		inner.Deliver(1)
		msg := testkit.Receive(t, c)
		time.Sleep(2 * time.Second)
		require.NoError(t, c.NackWithDelay(msg, 3*time.Second))
		due := time.Now().Add(3 * time.Second)
		time.Sleep(4 * time.Second)
		assert.Equal(t, 4*time.Second, c.Stats().OldestWaiting)
		msg = testkit.Receive(t, c)
		assert.Zero(t, c.Stats().OldestWaiting)
		assert.True(t, due.Equal(x.delivered[1].Due))
		assert.Equal(t, time.Second, x.delivered[1].Lateness)
		time.Sleep(time.Second)
		require.NoError(t, c.InProgress(msg)) // restarts the ack timeout
		time.Sleep(11 * time.Second)          // the ack timeout is over after 10 s
		synctest.Wait()
		assert.Equal(t, redelivery.TimedOut, x.settled[1].Outcome)
		assert.Equal(t, 11*time.Second, x.settled[1].Duration)
		inner.Deliver(1)
		msg = testkit.Receive(t, c)
		assert.Equal(t, time.Second, x.delivered[2].Lateness)
		require.NoError(t, c.NackWithDelay(msg, time.Second))
		require.NoError(t, c.Ack(msg))
		assert.Equal(t, []time.Duration{2 * time.Second, 11 * time.Second, 0, 0}, durations(x.settled))
		assert.Equal(t, 3*time.Second, x.settled[0].Delay)
	}, redelivery.WithObserver(x.observer()), redelivery.WithRedeliveryFrom(redelivery.FromMemory), redelivery.WithAckTimeout(10*time.Second))
}

// RedeliverNow ends the delay of the message.
func TestMessageIsNotEarlyAfterRedeliverNow(t *testing.T) {
	var x observed
	testkit.WrapFake(t, func(t *testing.T, c *redelivery.Consumer, inner *testkit.Fake, _ *bytes.Buffer) {
		inner.Deliver(1)
		require.NoError(t, c.NackWithDelay(testkit.Receive(t, c), time.Hour))
		time.Sleep(time.Minute)
		require.Equal(t, 1, c.RedeliverNow())
		require.NoError(t, c.Ack(testkit.Receive(t, c)))
		assert.Zero(t, x.delivered[1].Lateness)
		assert.True(t, time.Now().Equal(x.delivered[1].Due))
	}, redelivery.WithObserver(x.observer()), redelivery.WithRedeliveryFrom(redelivery.FromMemory))
}

func durations(settled []redelivery.Settled) (all []time.Duration) {
	for _, e := range settled {
		all = append(all, e.Duration)
	}
	return all
}

// The first delivery to this consumer has a count above 0, since the broker has sent the message to another consumer
// before.
func TestObserverSeesCountsOfEarlierConsumers(t *testing.T) {
	var x observed
	testkit.WrapFake(t, func(t *testing.T, c *redelivery.Consumer, inner *testkit.Fake, _ *bytes.Buffer) {
		inner.Queue <- pulsar.ConsumerMessage{Consumer: inner,
			Message: testkit.Message{MessageID: pulsar.NewMessageID(1, 1, 0, 0), Count: 2}}
		require.NoError(t, c.Ack(testkit.Receive(t, c)))
		x.await(t, "delivered 2 reconnect", "acked after 3")
		assert.True(t, x.delivered[0].Due.IsZero())
	}, redelivery.WithObserver(x.observer()))
}

// A message may wait in the channel of Chan. Its durations begin when the application takes it.
func TestObserverTimesStartWhenTakenFromChan(t *testing.T) {
	var x observed
	testkit.WrapFake(t, func(t *testing.T, c *redelivery.Consumer, inner *testkit.Fake, _ *bytes.Buffer) {
		messages := c.Chan()
		inner.DeliverBatch(1, 3)
		time.Sleep(5 * time.Second) // the first message waits in the channel
		cm := <-messages
		time.Sleep(time.Second)
		require.NoError(t, c.NackWithDelay(cm.Message, 2*time.Second))
		time.Sleep(time.Second)
		assert.Equal(t, time.Second, c.Stats().OldestWaiting)
		time.Sleep(4 * time.Second)
		cm = <-messages
		synctest.Wait()
		require.NoError(t, c.Ack(cm.Message))
		x.await(t, "delivered 0 ", "nacked after 1", "delivered 1 nack", "acked after 2")
		assert.Equal(t, []time.Duration{time.Second, 0}, durations(x.settled))
		assert.Equal(t, 3*time.Second, x.delivered[1].Lateness)
	}, redelivery.WithObserver(x.observer()), redelivery.WithRedeliveryFrom(redelivery.FromMemory))
}
