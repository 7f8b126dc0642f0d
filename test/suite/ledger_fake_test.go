package suite

import (
	"context"
	"runtime"
	"strconv"
	"sync"
	"testing"
	"testing/synctest"
	"time"
	"weak"

	"github.com/apache/pulsar-client-go/pulsar"
	"github.com/stretchr/testify/require"

	"github.com/pulsar-redelivery/redelivery"
)

// The answer to a request waits behind a minute of work; meanwhile it must not be asked for again.
func TestOneRequestIsEnoughInVirtualTime(t *testing.T) {
	for how, nack := range map[string]func(*redelivery.Consumer, pulsar.Message){
		"Nack":   (*redelivery.Consumer).Nack,
		"NackID": func(c *redelivery.Consumer, msg pulsar.Message) { c.NackID(msg.ID()) },
	} {
		t.Run(how, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				const n = 300
				c, s := newStandIn(t, pulsar.ConsumerOptions{Type: pulsar.Shared}, redelivery.WithNackRedeliveryDelay(ms(500)))
				s.window = 50
				s.publish(entries(numbers(n)...)...)
				j, failed := newJournal(), false
				drain(t, c, time.Minute, func(msg pulsar.Message) {
					j.taken(msg)
					if !failed {
						failed = true
						nack(c, msg)
						return
					}
					time.Sleep(ms(1200))
					require.NoError(t, c.Ack(msg))
					j.done(msg)
				})
				j.complete(t, n)
			})
		})
	}
}

// Ledger ids are unique in a topic, not in a cluster: a shadow topic has its source's.
func TestEqualIDsOfTwoTopics(t *testing.T) {
	for name, kind := range kinds {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				const n = 5
				c, s := newStandIn(t, pulsar.ConsumerOptions{Type: kind}, redelivery.WithNackRedeliveryDelay(time.Second))
				publish := func(topic string, from int64) {
					for i := range int64(n) {
						s.publish(entry(topic, from+i))
					}
				}
				take := func(n int, topic string) (msgs []pulsar.Message) {
					t.Helper()
					for range n {
						msg := receive(t, c)
						require.Contains(t, topic, msg.Topic())
						msgs = append(msgs, msg)
					}
					return msgs
				}
				publish("a", 0)
				for _, msg := range take(n, "a") {
					c.Nack(msg)
				}
				for _, msg := range take(n, "a") {
					require.EqualValues(t, 1, c.RedeliveryCount(msg))
					require.NoError(t, c.Ack(msg))
				}
				publish("b", 0)
				all := take(n, "b")
				publish("a", n)
				publish("b", n)
				all = append(all, take(2*n, "ab")...)
				for _, msg := range all {
					require.Zero(t, c.RedeliveryCount(msg))
					require.NoError(t, c.Ack(msg))
				}
				nothing(t, c, time.Minute)
			})
		})
	}
}

// A message that waits, or that the application has, is settled by a cumulative ack of a later one, which was settled
// before.
func TestCumulativeAckOfAForgottenMessage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, s := newStandIn(t, pulsar.ConsumerOptions{Type: pulsar.Exclusive, AckWithResponse: true},
			redelivery.WithNackRedeliveryDelay(time.Minute), redelivery.WithAckTimeout(time.Minute))
		s.publish(entries(numbers(5)...)...)
		var msgs []pulsar.Message
		for range 5 {
			msgs = append(msgs, receive(t, c))
		}
		c.Nack(msgs[0])
		c.NackID(msgs[1].ID())
		require.NoError(t, c.Ack(msgs[3]))
		time.Sleep(30 * time.Second)
		require.NoError(t, c.AckCumulative(msgs[3]))
		require.Zero(t, c.Stats().Waiting)
		again := receive10(t, c, 10*time.Minute)
		require.Equal(t, []string{"4"}, again, "its ack timeout is the only one that runs")
	})
}

// receive10 returns the names of up to ten messages that come within d.
func receive10(t *testing.T, c *redelivery.Consumer, d time.Duration) (names []string) {
	ctx, cancel := context.WithTimeout(context.Background(), d)
	defer cancel()
	for range 10 {
		msg, err := c.Receive(ctx)
		if err != nil {
			break
		}
		names = append(names, name(msg))
		require.NoError(t, c.Ack(msg))
	}
	return names
}

// A Receive that is under way gives way to a Seek, and still heeds its context.
func TestReceiveHeedsItsContextDuringASeek(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, s := newStandIn(t, pulsar.ConsumerOptions{})
		over := make(chan struct{})
		end := sync.OnceFunc(func() { close(over) })
		defer end()
		s.onSeek = func() { <-over }
		received := make(chan error, 2)
		ctx, cancel := context.WithCancel(context.Background())
		receiving := func() { _, err := c.Receive(ctx); received <- err }
		go receiving()
		synctest.Wait()
		sought := make(chan error, 1)
		go func() { sought <- c.SeekByTime(time.Now()) }()
		synctest.Wait()
		go receiving()
		synctest.Wait()
		cancel()
		synctest.Wait()
		require.Len(t, received, 2, "Receive outlives its context")
		require.ErrorIs(t, <-received, context.Canceled)
		require.ErrorIs(t, <-received, context.Canceled)
		end()
		require.NoError(t, <-sought)
	})
}

// The broker does not send what it knows to be acknowledged: to ask for it is in vain, and a rewind for all the others.
func TestNackAfterAnAckAsksNoMoreThanOnce(t *testing.T) {
	for how, nack := range map[string]func(*redelivery.Consumer, pulsar.Message){
		"Nack":   (*redelivery.Consumer).Nack,
		"NackID": func(c *redelivery.Consumer, msg pulsar.Message) { c.NackID(msg.ID()) },
	} {
		t.Run(how, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c, s := newStandIn(t, pulsar.ConsumerOptions{Type: pulsar.Exclusive}, redelivery.WithNackRedeliveryDelay(ms(100)))
				s.publish(entries(1, 2)...)
				msg, other := receive(t, c), receive(t, c)
				require.NoError(t, c.Ack(msg))
				time.Sleep(time.Minute)
				s.publish(entries(3)...)
				require.NoError(t, c.Ack(receive(t, c)))
				nack(c, msg)
				again := receive10(t, c, 10*time.Minute)
				t.Logf("%d requests in ten minutes", s.requests)
				require.LessOrEqual(t, s.requests, 1)
				require.Empty(t, again, "handed out after Ack had returned nil, or twice")
				require.NoError(t, c.Ack(other))
			})
		})
	}
}

// A pattern's topics come and go, each with a consumer of its own.
func TestAVanishedTopicIsForgotten(t *testing.T) {
	c, s := newStandIn(t, pulsar.ConsumerOptions{TopicsPattern: "persistent://public/default/.*", Type: pulsar.Shared})
	var gone []weak.Pointer[standIn]
	for i := range 10 {
		child := &standIn{opts: pulsar.ConsumerOptions{}}
		topic := "vanishing-" + strconv.Itoa(i)
		for n := range int64(3) {
			s.publishBy(child, entry(topic, n))
			msg := receive(t, c)
			require.Equal(t, topic, msg.Topic())
			require.NoError(t, c.Ack(msg))
		}
		s.opts.Interceptors.OnConsumerClose(child, nil)
		gone = append(gone, weak.Make(child))
	}
	s.publish(entry("lasting", 1))
	require.NoError(t, c.Ack(receive(t, c)))
	s.truncate()
	left := 0
	for range 20 {
		runtime.GC()
		left = 0
		for _, child := range gone {
			if child.Value() != nil {
				left++
			}
		}
		if left == 0 {
			return
		}
		time.Sleep(ms(50))
	}
	require.Zero(t, left, "consumers of vanished topics are kept")
}
