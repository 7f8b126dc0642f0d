package suite

import (
	"log/slog"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/apache/pulsar-client-go/pulsar"
	"github.com/stretchr/testify/require"

	"github.com/pulsar-redelivery/redelivery"
	"github.com/pulsar-redelivery/redelivery/backoff"
	"github.com/pulsar-redelivery/redelivery/internal/logtest"
)

// callbacks is an interceptor of functions; those that are nil do nothing.
type callbacks struct {
	before, acknowledged func()
}

func (x callbacks) BeforeConsume(pulsar.ConsumerMessage) {
	if x.before != nil {
		x.before()
	}
}

func (x callbacks) OnAcknowledge(pulsar.Consumer, pulsar.MessageID) {
	if x.acknowledged != nil {
		x.acknowledged()
	}
}

func (x callbacks) OnNegativeAcksSend(pulsar.Consumer, []pulsar.MessageID) {}

// panicsOnce returns a function that panics when it is called for the first time.
func panicsOnce() func() {
	var called atomic.Bool
	return func() {
		if !called.Swap(true) {
			panic("the application's own")
		}
	}
}

// try calls what may panic, which is not judged here.
func try(call func()) {
	defer func() { _ = recover() }()
	call()
}

// What a panic left half done can be done again.
func TestAPanicOfAnInterceptorDuringAckIDList(t *testing.T) {
	t.Parallel()
	acks := func(t *testing.T, c *redelivery.Consumer, msgs []pulsar.Message) {
		t.Helper()
		ids := make([]pulsar.MessageID, len(msgs))
		for i, msg := range msgs {
			ids[i] = msg.ID()
		}
		try(func() { _ = c.AckIDList(ids) })
		returns(t, func() error { return c.Ack(msgs[0]) })
		returns(t, func() error { return c.AckIDList(ids[1:]) })
		c.Nack(msgs[0])
		nothing(t, c, ms(500))
	}
	t.Run("stand-in", func(t *testing.T) {
		c, s := newStandIn(t, pulsar.ConsumerOptions{Type: pulsar.Shared}, redelivery.WithNackRedeliveryDelay(ms(50)))
		s.publish(entries(1, 2, 3)...)
		s.onAck = panicsOnce()
		acks(t, c, []pulsar.Message{receive(t, c), receive(t, c), receive(t, c)})
	})
	t.Run("zero-queue", func(t *testing.T) {
		b := newBroker(t)
		topic := b.topic(0)
		b.send(topic, 3, false)
		opts := b.options(topic, pulsar.Shared)
		opts.EnableZeroQueueConsumer = true
		opts.Interceptors = pulsar.ConsumerInterceptors{callbacks{acknowledged: panicsOnce()}}
		c := b.subscribe(opts, redelivery.WithNackRedeliveryDelay(ms(50)))
		acks(t, c, []pulsar.Message{receive(t, c), receive(t, c), receive(t, c)})
		b.settles(topic, 0)
	})
}

// Whatever the feeder of Chan calls may close the Consumer.
func TestCloseFromWhatTheFeederCalls(t *testing.T) {
	for name, subscribe := range map[string]func(close func()) (pulsar.ConsumerOptions, []redelivery.Option){
		"policy": func(close func()) (pulsar.ConsumerOptions, []redelivery.Option) {
			return pulsar.ConsumerOptions{}, []redelivery.Option{redelivery.WithAckTimeout(time.Minute),
				redelivery.WithAckTimeoutRedeliveryBackoff(backoff.Func(func(uint32) time.Duration { close(); return 0 }))}
		},
		"interceptor": func(close func()) (pulsar.ConsumerOptions, []redelivery.Option) {
			return pulsar.ConsumerOptions{Interceptors: pulsar.ConsumerInterceptors{callbacks{before: close}}}, nil
		},
	} {
		t.Run(name, func(t *testing.T) {
			var c *redelivery.Consumer
			closed := make(chan struct{})
			opts, options := subscribe(func() {
				c.Close()
				close(closed)
			})
			c, s := newStandIn(t, opts, options...)
			s.publish(entries(1)...)
			select {
			case <-c.Chan():
			case <-closed:
			case <-time.After(10 * time.Second):
			}
			returns(t, func() error { <-closed; return nil })
		})
	}
}

// A message is handed out whatever an interceptor makes of it, and is watched over as any other.
func TestAPanicOfBeforeConsumeLosesNothing(t *testing.T) {
	for how, take := range map[string]func(*testing.T, *redelivery.Consumer) pulsar.Message{
		"Receive": func(t *testing.T, c *redelivery.Consumer) pulsar.Message { return receive(t, c) },
		"Chan": func(t *testing.T, c *redelivery.Consumer) pulsar.Message {
			select {
			case cm := <-c.Chan():
				return cm
			case <-time.After(15 * time.Second):
				require.FailNow(t, "no message")
				return nil
			}
		},
	} {
		t.Run(how, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var log logtest.Buffer
				opts := pulsar.ConsumerOptions{Interceptors: pulsar.ConsumerInterceptors{callbacks{before: panicsOnce()}}}
				c, s := newStandIn(t, opts, redelivery.WithAckTimeout(10*time.Second),
					redelivery.WithLogger(slog.New(slog.NewTextHandler(&log, nil))))
				s.publish(entries(1)...)
				var msg pulsar.Message
				require.NotPanics(t, func() { msg = take(t, c) })
				require.Equal(t, "1", name(msg))
				require.EqualValues(t, 1, c.Stats().Failed)
				require.Contains(t, strings.ToLower(log.String()), "panic")
				again := take(t, c)
				require.Equal(t, "1", name(again), "its ack timeout is over")
				require.EqualValues(t, 1, c.RedeliveryCount(again))
				require.NoError(t, c.Ack(again))
			})
		})
	}
}

// What was acknowledged twelve seconds ago is new to the application's operator, who moved the cursor back.
func TestOperatorsCursorResetInVirtualTime(t *testing.T) {
	for which, kind := range kinds {
		t.Run(which, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				const n = 20
				c, s := newStandIn(t, pulsar.ConsumerOptions{Type: kind}, redelivery.WithNackRedeliveryDelay(ms(100)))
				s.publish(entries(numbers(n)...)...)
				for round := range 2 {
					failed := map[string]bool{}
					acked := map[string]int{}
					drain(t, c, 12*time.Second, func(msg pulsar.Message) {
						if !failed[name(msg)] && len(failed) < n/2 {
							failed[name(msg)] = true
							c.Nack(msg)
							return
						}
						require.NoError(t, c.Ack(msg))
						acked[name(msg)]++
					})
					require.Len(t, acked, n, "round %d", round)
					s.reset()
				}
			})
		})
	}
}

// An id says how large its batch is, and anybody can make one up.
func TestNackIDOfAHugeBatchIndexIsCheap(t *testing.T) {
	c, _ := newStandIn(t, pulsar.ConsumerOptions{Type: pulsar.Shared})
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	c.NackID(pulsar.NewMessageID(1, 1, 1<<24, 0))
	runtime.ReadMemStats(&after)
	allocated := (after.TotalAlloc - before.TotalAlloc) >> 20
	require.Less(t, allocated, uint64(16), "MiB")
}
