package nack

import (
	"context"
	"fmt"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/apache/pulsar-client-go/pulsar"
	"github.com/stretchr/testify/require"

	"github.com/pulsar-redelivery/redelivery"
	"github.com/pulsar-redelivery/redelivery/internal/waittest"
	"github.com/pulsar-redelivery/redelivery/test/testkit"
)

// requests is an interceptor that counts the requests for redelivery.
type requests struct{ n atomic.Int32 }

func (r *requests) BeforeConsume(pulsar.ConsumerMessage)                   {}
func (r *requests) OnAcknowledge(pulsar.Consumer, pulsar.MessageID)        {}
func (r *requests) OnNegativeAcksSend(pulsar.Consumer, []pulsar.MessageID) { r.n.Add(1) }

// With pulsar-client-go alone and with the Java client, the nacks of this test cause 300 to 4,600 deliveries.
func TestBatchNackedOneByOneIsRequestedOnce(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		messages       int
		between, delay time.Duration
	}{
		"100 messages, 2 ms apart":   {100, 2 * time.Millisecond, 300 * time.Millisecond},
		"5 messages at five moments": {5, 400 * time.Millisecond, time.Second},
	} {
		testkit.Each(t, map[string]pulsar.SubscriptionType{"Shared": pulsar.Shared, "Exclusive": pulsar.Exclusive},
			func(t *testing.T, kind pulsar.SubscriptionType) {
				t.Run(name, func(t *testing.T) {
					t.Parallel()
					b := testkit.NewBroker(t)
					topic := b.NewTopic(0)
					var sent requests
					opts := b.Options(topic, kind)
					opts.Interceptors = pulsar.ConsumerInterceptors{&sent}
					consumer := b.Subscribe(opts, redelivery.WithNackRedeliveryDelay(c.delay),
						redelivery.WithRedeliveryFrom(redelivery.FromMemory))
					b.Send(topic, c.messages, true)
					due := make([]time.Time, c.messages)
					nacked := make(chan struct{})
					var msgs []pulsar.Message
					for range c.messages {
						msgs = append(msgs, testkit.Receive(t, consumer))
					}
					go func() {
						defer close(nacked)
						for i, msg := range msgs {
							due[i] = time.Now().Add(c.delay)
							consumer.Nack(msg)
							time.Sleep(c.between)
						}
					}()
					time.Sleep(c.delay / 2)
					for i := range c.messages {
						msg := testkit.Receive(t, consumer)
						now := time.Now()
						require.Equal(t, strconv.Itoa(i), string(msg.Payload()))
						if i == 0 {
							require.Less(t, due[0], now)
						}
						require.EqualValues(t, 1, consumer.RedeliveryCount(msg))
						require.NoError(t, consumer.Ack(msg))
					}
					waittest.Next(t, nacked)
					testkit.ReceiveNothing(t, consumer, 700*time.Millisecond)
					b.Settles(topic, 0)
					require.Equal(t, c.messages, b.Stats(topic, 0).Out, "the broker sent waiting messages again")
				})
			})
	}
}

func TestThousandWaitingMessagesOutliveUnloads(t *testing.T) {
	t.Parallel()
	const n = 1000
	testkit.Each(t, testkit.SubscriptionTypes, func(t *testing.T, kind pulsar.SubscriptionType) {
		b := testkit.NewBroker(t)
		topic := b.NewTopic(0)
		c := b.Subscribe(b.Options(topic, kind), redelivery.WithNackRedeliveryDelay(8*time.Second),
			// by default the messages would wait at the broker, since all fail
			redelivery.WithRedeliveryFrom(redelivery.FromMemory))
		b.Send(topic, n, false)
		due := map[string]time.Time{}
		for range n {
			msg := testkit.Receive(t, c)
			due[string(msg.Payload())] = time.Now().Add(8 * time.Second)
			c.Nack(msg)
		}
		require.Len(t, due, n)
		type arrival struct {
			pulsar.Message
			at time.Time
		}
		received := make(chan arrival, 10*n) // the Consumer holds copies back only while the test receives
		ctx, cancel := context.WithCancel(context.Background())
		done := make(chan struct{})
		go func() {
			defer close(done)
			for {
				msg, err := c.Receive(ctx)
				if err != nil {
					return
				}
				received <- arrival{msg, time.Now()}
			}
		}()
		for range 3 {
			time.Sleep(time.Second)
			b.Unload(topic)
		}
		for range n {
			select {
			case msg := <-received:
				require.Contains(t, due, string(msg.Payload()), "twice")
				require.False(t, msg.at.Before(due[string(msg.Payload())]), "%s is early", msg.Payload())
				delete(due, string(msg.Payload()))
				require.EqualValues(t, 1, c.RedeliveryCount(msg))
				require.NoError(t, c.Ack(msg))
			case <-time.After(15 * time.Second):
				t.Fatalf("%d messages are lost", len(due))
			}
		}
		time.Sleep(500 * time.Millisecond)
		require.Empty(t, received, "twice")
		b.Settles(topic, 0)
		stats := c.Stats()
		t.Logf("%d copies were buffered", stats.Buffered)
		if stats.Buffered == 3*n {
			// the broker's counter restarts with each unload: no message was requested after the last one
			require.Equal(t, n, b.Stats(topic, 0).Out)
		}
		require.NotZero(t, stats.Buffered+stats.Dropped) // copies that come while a connection is missing are dropped
		require.Zero(t, stats.Waiting)
		cancel()
		waittest.Next(t, done)
	})
}

// The bad message fails a few times: before, while and long after its siblings are handled.
func TestGoodSiblingsOfBadMessageAreHandledOnce(t *testing.T) {
	t.Parallel()
	const n, consumers, tries = 40, 3, 4
	for _, index := range []bool{false, true} {
		for _, work := range []time.Duration{0, 50 * time.Millisecond} {
			t.Run(fmt.Sprintf("index acks=%t, a message takes %v", index, work), func(t *testing.T) {
				t.Parallel()
				b := testkit.NewBroker(t)
				topic := b.NewTopic(0)
				ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
				defer cancel()
				var consuming sync.WaitGroup
				var good, bad atomic.Int32
				for range consumers {
					opts := b.Options(topic, pulsar.Shared)
					opts.EnableBatchIndexAcknowledgment = index
					c := b.Subscribe(opts, redelivery.WithNackRedeliveryDelay(600*time.Millisecond))
					consuming.Go(func() {
						for {
							msg, err := c.Receive(ctx)
							if err != nil {
								return
							}
							switch {
							case testkit.Name(msg) != "7":
								time.Sleep(work)
								good.Add(1)
							case bad.Add(1) < tries:
								c.Nack(msg)
								continue
							default:
								time.AfterFunc(3*time.Second, cancel)
							}
							_ = c.Ack(msg)
						}
					})
				}
				b.Send(topic, n, true)
				consuming.Wait()
				require.EqualValues(t, tries, bad.Load())
				require.EqualValues(t, n-1, good.Load(), "siblings were handled again")
			})
		}
	}
}
