package matrix

import (
	"context"
	"errors"
	"time"

	"github.com/apache/pulsar-client-go/pulsar"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pulsar-redelivery/redelivery"
	"github.com/pulsar-redelivery/redelivery/backoff"
	"github.com/pulsar-redelivery/redelivery/test/testkit"
)

// feature is a test for consumers of every kind. At the end of the test all messages must be acknowledged.
type feature struct {
	options []redelivery.Option
	dlq     func(*pulsar.ConsumerOptions) // sets DLQ
	batched bool
	test    func(*cell)
}

var growing = backoff.Exponential{Min: 200 * time.Millisecond, Max: time.Minute, Multiplier: 2}

var features = map[string]feature{
	"nack": {
		options: []redelivery.Option{redelivery.WithNackRedeliveryBackoff(growing)},
		test: func(x *cell) {
			x.failTwice(func(msg pulsar.Message, count uint32) time.Time {
				due := time.Now().Add(growing.Next(count))
				x.c.Nack(msg)
				return due
			})
		},
	},
	"ack-timeout": {
		options: []redelivery.Option{redelivery.WithAckTimeout(200 * time.Millisecond),
			redelivery.WithAckTimeoutRedeliveryBackoff(growing)},
		test: func(x *cell) {
			x.failTwice(func(msg pulsar.Message, count uint32) time.Time {
				due := time.Now().Add(200*time.Millisecond + growing.Next(count))
				if err := x.c.InProgress(msg); errors.Is(err, redelivery.ErrNotInFlight) {
					return time.Time{} // on a slow computer the ack timeout is already over
				}
				return due
			})
		},
	},
	"reconsume": {
		dlq: func(o *pulsar.ConsumerOptions) { o.RetryEnable, o.DLQ = true, &pulsar.DLQPolicy{MaxDeliveries: 5} },
		test: func(x *cell) {
			x.publish(cellMessages, false)
			due, done := map[string]time.Time{}, map[string]bool{}
			for range 2 * cellMessages {
				msg := x.receive()
				text := x.text(msg)
				require.False(x.t, done[text], "%s came twice", text)
				at, again := due[text]
				if !again {
					due[text] = time.Now().Add(300 * time.Millisecond)
					require.NoError(x.t, x.c.ReconsumeLaterAfter(context.Background(), msg, 300*time.Millisecond,
						map[string]string{"why": "busy"}))
					continue
				}
				require.False(x.t, time.Now().Before(at), "early")
				require.Equal(x.t, "1", msg.Properties()["RECONSUMETIMES"])
				require.Equal(x.t, "busy", msg.Properties()["why"])
				require.Equal(x.t, testkit.RetryTopic(x.topics[0]), msg.Topic())
				done[text] = true
				require.NoError(x.t, x.c.Ack(msg))
			}
			require.Len(x.t, done, cellMessages)
		},
	},
	"dead-letter": {
		options: []redelivery.Option{redelivery.WithNackRedeliveryDelay(100 * time.Millisecond)},
		dlq:     func(o *pulsar.ConsumerOptions) { o.DLQ = &pulsar.DLQPolicy{MaxDeliveries: 2} },
		test:    (*cell).failUntilDead,
	},
	"one-of-a-batch": {
		options: []redelivery.Option{redelivery.WithNackRedeliveryDelay(200 * time.Millisecond)},
		batched: true,
		test: func(x *cell) {
			x.publish(3, true)
			var due time.Time
			times := map[string]uint32{}
			for range 3 + 1 {
				msg := x.receive()
				text := x.text(msg)
				require.EqualValues(x.t, 3, msg.ID().BatchSize())
				require.False(x.t, time.Now().Before(due) && text == "1", "early")
				require.Equal(x.t, times[text], x.c.RedeliveryCount(msg))
				times[text]++
				if text == "1" && times[text] == 1 {
					due = time.Now().Add(200 * time.Millisecond)
					x.c.Nack(msg)
					continue
				}
				require.NoError(x.t, x.c.Ack(msg))
			}
			require.Equal(x.t, map[string]uint32{"0": 1, "1": 2, "2": 1}, times)
		},
	},
}

const cellMessages = 6

// failTwice calls fail at the first two deliveries of each message, and acknowledges the third. fail returns the time
// from which the message may come again.
func (x *cell) failTwice(fail func(msg pulsar.Message, count uint32) time.Time) {
	x.t.Helper()
	x.publish(cellMessages, false)
	due, count := map[string]time.Time{}, map[string]uint32{}
	for range 3 * cellMessages {
		msg := x.receive()
		text := x.text(msg)
		require.False(x.t, time.Now().Before(due[text]), "%s is early", text)
		require.Equal(x.t, count[text], x.c.RedeliveryCount(msg), text)
		count[text]++
		if count[text] == 3 {
			require.NoError(x.t, x.c.Ack(msg))
			continue
		}
		due[text] = fail(msg, count[text]-1)
	}
	require.Len(x.t, count, cellMessages)
}

func (x *cell) failUntilDead() {
	opts := x.Options(testkit.DeadLetterTopic(x.topics[0]), pulsar.Exclusive)
	opts.Schema, opts.Decryption = x.opts.Schema, x.opts.Decryption
	dead, err := x.Client.Subscribe(opts)
	require.NoError(x.t, err)
	defer dead.Close()
	x.publish(cellMessages, false)
	for range 2 * cellMessages {
		x.c.Nack(x.receive())
	}
	receiving, stop := context.WithCancel(context.Background())
	stopped := make(chan struct{})
	go func() { // no dead letters are made while nothing receives
		defer close(stopped)
		if x.opts.MessageChannel == nil {
			msg, err := x.c.Receive(receiving)
			assert.Error(x.t, err, "%v was delivered more than twice", msg)
		}
	}()
	texts := map[string]bool{}
	for range cellMessages {
		msg := testkit.Next(x.t, dead, testkit.Patience)
		require.Equal(x.t, "1", msg.Properties()["REDELIVERY_COUNT"])
		texts[x.text(msg)] = true
	}
	require.Len(x.t, texts, cellMessages)
	stop()
	<-stopped
}
