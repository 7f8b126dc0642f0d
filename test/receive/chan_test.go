package receive

import (
	"bytes"
	"context"
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/apache/pulsar-client-go/pulsar"
	"github.com/stretchr/testify/require"

	"github.com/pulsar-redelivery/redelivery"
	"github.com/pulsar-redelivery/redelivery/internal/waittest"
	"github.com/pulsar-redelivery/redelivery/test/testkit"
	"github.com/pulsar-redelivery/redelivery/worker"
)

// As with upstream, Receive and Chan share the messages.
func TestReceiveBesideChanSharesMessages(t *testing.T) {
	t.Parallel()
	testkit.Each(t, map[string]chan pulsar.ConsumerMessage{"Chan": nil,
		"MessageChannel": make(chan pulsar.ConsumerMessage, 10)},
		func(t *testing.T, channel chan pulsar.ConsumerMessage) {
			b := testkit.NewBroker(t)
			topic := b.NewTopic(0)
			opts := b.Options(topic, pulsar.Exclusive)
			opts.MessageChannel = channel
			c := b.Subscribe(opts, redelivery.WithNackRedeliveryDelay(20*time.Millisecond),
				redelivery.WithAckTimeout(time.Minute))
			b.Send(topic, 3, false)
			ch := c.Chan()
			time.Sleep(200 * time.Millisecond) // time in which the first message, or all of them, enter the channel
			for _, want := range []string{"0", "1"} {
				msg := testkit.Receive(t, c)
				require.Equal(t, want, string(msg.Payload()))
				require.NoError(t, c.Ack(msg))
			}
			cm := waittest.Next(t, ch)
			require.Equal(t, "2", string(cm.Payload()))
			c.Nack(cm.Message)
			again := testkit.Receive(t, c)
			require.EqualValues(t, 1, c.RedeliveryCount(again))
			require.NoError(t, c.Ack(again))
			testkit.ReceiveNothing(t, c, 100*time.Millisecond)
			b.Send(topic, 3, false)
			ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
			defer cancel()
			var handled atomic.Int32
			w, err := worker.New(c, func(context.Context, pulsar.Message) error {
				if handled.Add(1) == 3 {
					cancel()
				}
				return nil
			})
			require.NoError(t, err)
			require.NoError(t, w.Run(ctx))
			require.EqualValues(t, 3, handled.Load())
			b.Settles(topic, 0)
			c.Close()
			_, err = c.Receive(waittest.Context(t))
			require.Error(t, err)
		})
}

func TestChanDeliversTheConsumer(t *testing.T) {
	testkit.WrapFake(t, func(t *testing.T, c *redelivery.Consumer, inner *testkit.Fake, _ *bytes.Buffer) {
		inner.Deliver(1)
		cm := <-c.Chan()
		require.Same(t, c, cm.Consumer)
		cm.Nack(cm)
		time.Sleep(time.Minute)
		synctest.Wait()
		require.Len(t, inner.Requests(), 1)
	}, testkit.FromBroker)
}

func TestChanHasNoBuffer(t *testing.T) {
	c, _ := testkit.SubscribeFake(t, pulsar.Shared)
	require.Zero(t, cap(c.Chan()))
}

// One of several consumers gives back, unsubscribes or seeks. The messages of the others stay in the channel, in order.
func TestSharedMessageChannelKeepsMessagesOfOthers(t *testing.T) {
	t.Parallel()
	if testkit.InOwnProcess(t) {
		return
	}
	const n = 20
	for _, size := range []int{n, n / 2} {
		for name, call := range map[string]func(*redelivery.Consumer) error{
			"GiveBack":    (*redelivery.Consumer).GiveBack,
			"Unsubscribe": (*redelivery.Consumer).Unsubscribe,
			"Seek":        func(c *redelivery.Consumer) error { return c.SeekByTime(time.Now().Add(time.Minute)) },
		} {
			t.Run(fmt.Sprint(name, size), func(t *testing.T) {
				t.Parallel()
				b := testkit.NewBroker(t)
				opts := b.Options(b.NewTopic(0), pulsar.Shared)
				channel := make(chan pulsar.ConsumerMessage, size)
				opts.MessageChannel = channel
				one := b.Subscribe(opts)
				opts.Topic = b.NewTopic(0)
				other := b.Subscribe(opts)
				b.Send(opts.Topic, n, false)
				require.Eventually(t, func() bool { return len(channel) == size }, testkit.Patience, time.Millisecond)
				require.NoError(t, call(one))
				of := map[string]bool{}
				for len(of) < n {
					select {
					case cm := <-channel:
						require.Equal(t, other, cm.Consumer)
						require.NoError(t, other.Ack(cm))
						of[string(cm.Payload())] = true
					case <-time.After(testkit.Patience):
						require.FailNow(t, "messages of another consumer are gone", "%d of %d came", len(of), n)
					}
				}
				b.Settles(opts.Topic, 0)
			})
		}
	}
}

// Chan offers a redelivery. Before the application takes it, the message is acknowledged.
func TestChanDropsRedeliveryAckedBeforeItIsTaken(t *testing.T) {
	t.Parallel()
	for how, ack := range map[string]func(*redelivery.Consumer, pulsar.Message) error{
		"Ack": (*redelivery.Consumer).Ack,
		"AckIDList": func(c *redelivery.Consumer, msg pulsar.Message) error {
			return c.AckIDList([]pulsar.MessageID{msg.ID()})
		},
		"AckCumulative": (*redelivery.Consumer).AckCumulative,
	} {
		for kind := range testkit.SubscriptionTypes {
			if how == "AckCumulative" && kind != "Exclusive" && kind != "Failover" {
				continue
			}
			t.Run(how+" "+kind, func(t *testing.T) {
				t.Parallel()
				b := testkit.NewBroker(t)
				topic := b.NewTopic(0)
				b.Send(topic, 2, false)
				c := b.Subscribe(b.Options(topic, testkit.SubscriptionTypes[kind]),
					redelivery.WithNackRedeliveryDelay(100*time.Millisecond))
				first, second := <-c.Chan(), <-c.Chan()
				c.Nack(first)
				c.NackID(second.ID())
				time.Sleep(time.Second)
				require.NoError(t, ack(c, first))
				require.NoError(t, ack(c, second))
				select {
				case cm := <-c.Chan():
					require.FailNow(t, "a message came after its Ack had returned nil", "%s", cm.Payload())
				case <-time.After(500 * time.Millisecond):
				}
				require.Zero(t, c.Stats().Waiting)
				b.Settles(topic, 0)
			})
		}
	}
}

// While Chan offers a message, a goroutine acknowledges the message or seeks. After that call has returned, Chan no
// longer offers the message.
func TestChanDropsOfferSettledBefore(t *testing.T) {
	// with more threads, more goroutines are interrupted at a bad moment
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(8))
	const readers = 20
	rounds := map[string]int64{"Seek": 1500, "Ack": 500}
	if *testkit.Long {
		rounds["Seek"] = 8000
	}
	for name, settle := range map[string]func(c *redelivery.Consumer, s *testkit.StandIn, n int64) error{
		"Seek": func(c *redelivery.Consumer, s *testkit.StandIn, n int64) error {
			s.Publish(testkit.Entries(n)...)
			if n%4 == 0 {
				runtime.Gosched()
			}
			return c.SeekByTime(time.Now())
		},
		"Ack": func(c *redelivery.Consumer, s *testkit.StandIn, n int64) error {
			s.Publish(testkit.Entries(n)...)
			cm := <-c.Chan()
			if err := c.NackWithDelay(cm, 0); err != nil {
				return err
			}
			if n%4 == 0 {
				runtime.Gosched()
			}
			return c.Ack(cm)
		},
	} {
		t.Run(name, func(t *testing.T) {
			var all sync.WaitGroup
			for range readers {
				c, s := testkit.NewStandIn(t, pulsar.ConsumerOptions{})
				all.Go(func() {
					for n := int64(0); n < 2*rounds[name] && !t.Failed(); n += 2 {
						if err := settle(c, s, n); err != nil {
							t.Error(err)
							return
						}
						s.Publish(testkit.Entries(n + 1)...)
						cm := <-c.Chan()
						if cm.ID().EntryID() != n+1 {
							t.Errorf("round %d: message %d came, want %d", n/2, cm.ID().EntryID(), n+1)
							return
						}
						if err := c.Ack(cm); err != nil {
							t.Error(err)
							return
						}
						s.Truncate()
					}
				})
			}
			all.Wait()
		})
	}
}

func TestUpstreamsChanReturnsTheMessageChannel(t *testing.T) {
	t.Parallel()
	b := testkit.NewBroker(t)
	opts, err := testkit.PreparedOptions(b.Options(b.NewTopic(0), pulsar.Shared))
	require.NoError(t, err)
	inner, err := b.Client.Subscribe(opts)
	require.NoError(t, err)
	defer inner.Close()
	require.Equal(t, (<-chan pulsar.ConsumerMessage)(opts.MessageChannel), inner.Chan(),
		"upstream returns another channel: SubscribeWith could not recognize its consumer")
}
