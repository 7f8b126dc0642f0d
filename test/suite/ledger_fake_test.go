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
	"github.com/pulsar-redelivery/redelivery/test/testkit"
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
				c, s := testkit.NewStandIn(t, pulsar.ConsumerOptions{Type: pulsar.Shared}, redelivery.WithNackRedeliveryDelay(500*time.Millisecond))
				s.Window = 50
				s.Publish(testkit.Entries(testkit.Numbers(n)...)...)
				j, failed := testkit.NewJournal(), false
				testkit.Drain(t, c, time.Minute, func(msg pulsar.Message) {
					j.Taken(msg)
					if !failed {
						failed = true
						nack(c, msg)
						return
					}
					time.Sleep(1200 * time.Millisecond)
					require.NoError(t, c.Ack(msg))
					j.Done(msg)
				})
				j.Complete(t, n)
			})
		})
	}
}

// A Receive that is under way gives way to a Seek, and still heeds its context.
func TestReceiveHeedsItsContextDuringASeek(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, s := testkit.NewStandIn(t, pulsar.ConsumerOptions{})
		over := make(chan struct{})
		end := sync.OnceFunc(func() { close(over) })
		defer end()
		s.OnSeek = func() { <-over }
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
				c, s := testkit.NewStandIn(t, pulsar.ConsumerOptions{Type: pulsar.Exclusive}, redelivery.WithNackRedeliveryDelay(100*time.Millisecond))
				s.Publish(testkit.Entries(1, 2)...)
				msg, other := testkit.Receive(t, c), testkit.Receive(t, c)
				require.NoError(t, c.Ack(msg))
				time.Sleep(time.Minute)
				s.Publish(testkit.Entries(3)...)
				require.NoError(t, c.Ack(testkit.Receive(t, c)))
				nack(c, msg)
				again := testkit.ReceiveTen(t, c, 10*time.Minute)
				t.Logf("%d requests in ten minutes", s.Requests)
				require.LessOrEqual(t, s.Requests, 1)
				require.Empty(t, again, "handed out after Ack had returned nil, or twice")
				require.NoError(t, c.Ack(other))
			})
		})
	}
}

// A pattern's topics come and go, each with a consumer of its own.
func TestAVanishedTopicIsForgotten(t *testing.T) {
	c, s := testkit.NewStandIn(t, pulsar.ConsumerOptions{TopicsPattern: "persistent://public/default/.*", Type: pulsar.Shared})
	var gone []weak.Pointer[testkit.StandIn]
	for i := range 10 {
		child := &testkit.StandIn{Opts: pulsar.ConsumerOptions{}}
		topic := "vanishing-" + strconv.Itoa(i)
		for n := range int64(3) {
			s.PublishBy(child, testkit.Entry(topic, n))
			msg := testkit.Receive(t, c)
			require.Equal(t, topic, msg.Topic())
			require.NoError(t, c.Ack(msg))
		}
		s.Opts.Interceptors.OnConsumerClose(child, nil)
		gone = append(gone, weak.Make(child))
	}
	s.Publish(testkit.Entry("lasting", 1))
	require.NoError(t, c.Ack(testkit.Receive(t, c)))
	s.Truncate()
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
		time.Sleep(50 * time.Millisecond)
	}
	require.Zero(t, left, "consumers of vanished topics are kept")
}
