package nack

import (
	"bytes"
	"math"
	"testing"
	"testing/synctest"
	"time"

	"github.com/apache/pulsar-client-go/pulsar"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pulsar-redelivery/redelivery"
	"github.com/pulsar-redelivery/redelivery/backoff"
	"github.com/pulsar-redelivery/redelivery/test/testkit"
)

// After a rewind the broker would send the application's other messages again.
func TestAckTimeoutDoesNotRewind(t *testing.T) {
	t.Parallel()
	const n = 100
	testkit.Each(t, map[string]bool{"batched": true, "single": false}, func(t *testing.T, batched bool) {
		for _, kind := range []string{"Exclusive", "Failover"} {
			t.Run(kind, func(t *testing.T) {
				t.Parallel()
				b := testkit.NewBroker(t)
				topic := b.NewTopic(0)
				b.Send(topic, n, batched)
				c := b.Subscribe(b.Options(topic, testkit.SubscriptionTypes[kind]),
					redelivery.WithAckTimeout(2*time.Second))
				var msgs []pulsar.Message
				for range n {
					msgs = append(msgs, testkit.Receive(t, c))
				}
				stop := make(chan struct{})
				stopped := make(chan struct{})
				go func() {
					defer close(stopped)
					for {
						for _, msg := range msgs[1:] {
							_ = c.InProgress(msg)
						}
						select {
						case <-time.After(200 * time.Millisecond):
						case <-stop:
							return
						}
					}
				}()
				defer func() { close(stop); <-stopped }()
				again := testkit.Receive(t, c)
				require.Equal(t, msgs[0].Payload(), again.Payload())
				require.NoError(t, c.Ack(again))
				testkit.ReceiveNothing(t, c, 500*time.Millisecond)
				s := c.Stats()
				require.Zero(t, s.Buffered+s.Dropped+s.Swallowed, "%+v", s)
				require.Equal(t, n, b.Stats(topic, 0).Out, "the broker sent messages again")
			})
		}
	})
}

func TestAckTimeoutOfZeroIsNoAckTimeout(t *testing.T) {
	t.Parallel()
	b := testkit.NewBrokerInProcess(t, pulsar.ClientOptions{})
	topic := b.NewTopic(0)
	c, err := redelivery.Subscribe(b.Client, b.Options(topic, pulsar.Shared), redelivery.WithAckTimeout(0),
		redelivery.WithAckTimeoutRedeliveryBackoff(backoff.Fixed(0)))
	require.NoError(t, err)
	defer c.Close()
	b.Send(topic, 1, false)
	d, err := c.Delivery(testkit.Receive(t, c))
	require.NoError(t, err)
	require.Zero(t, d.AckDeadline)
}

func TestInProgressBeforeItsClockStartsReturns(t *testing.T) {
	var started chan struct{}
	policy := backoff.Func(func(uint32) time.Duration { <-started; return 0 })
	testkit.WrapFake(t, func(t *testing.T, c *redelivery.Consumer, inner *testkit.Fake, _ *bytes.Buffer) {
		started = make(chan struct{})
		inner.Deliver(1)
		cm := <-c.Chan()
		for range 3 {
			require.NoError(t, c.InProgress(cm))
		}
		close(started)
		synctest.Wait()
		require.NoError(t, c.InProgress(cm))
	}, redelivery.WithAckTimeout(time.Minute), redelivery.WithAckTimeoutRedeliveryBackoff(policy))
}

func TestInvalidAckTimeoutOptionsAreRefused(t *testing.T) {
	for want, options := range map[string][]redelivery.Option{
		"WithAckTimeout is -1s":                   {redelivery.WithAckTimeout(-time.Second)},
		"WithAckTimeoutRedeliveryBackoff: ":       {redelivery.WithAckTimeout(time.Second), redelivery.WithAckTimeoutRedeliveryBackoff(nil)},
		"WithAckTimeoutRedeliveryBackoff is set,": {redelivery.WithAckTimeoutRedeliveryBackoff(backoff.Fixed(time.Second))},
	} {
		_, err := testkit.PreparedOptions(pulsar.ConsumerOptions{}, options...)
		require.ErrorIs(t, err, redelivery.ErrInvalidOption)
		assert.ErrorContains(t, err, want)
	}
}

func TestAckTimeoutIsExact(t *testing.T) {
	policy := backoff.Exponential{Min: time.Second, Max: time.Minute, Multiplier: 2}
	for name, c := range map[string]struct {
		options []redelivery.Option
		want    []int
	}{
		"PIP-130":       {[]redelivery.Option{redelivery.WithAckTimeoutRedeliveryBackoff(policy)}, []int{11, 12, 14, 18, 26, 42, 70, 70}},
		"timeout alone": {nil, []int{10, 10, 10}},
		"negative": {[]redelivery.Option{redelivery.WithAckTimeoutRedeliveryBackoff(
			backoff.Func(func(uint32) time.Duration { return math.MinInt64 }))}, []int{10, 10}},
	} {
		t.Run(name, func(t *testing.T) {
			testkit.WrapFake(t, func(t *testing.T, c2 *redelivery.Consumer, inner *testkit.Fake, _ *bytes.Buffer) {
				for n, seconds := range c.want {
					inner.Channel <- pulsar.ConsumerMessage{Consumer: inner,
						Message: testkit.Message{MessageID: pulsar.NewMessageID(1, 1, 0, 0), Count: uint32(n)}}
					time.Sleep(20 * time.Second) // the prefetched message's ack timeout does not run
					start := time.Now()
					require.EqualValues(t, n, c2.RedeliveryCount(testkit.Receive(t, c2)))
					time.Sleep(time.Duration(seconds)*time.Second - 1)
					synctest.Wait()
					require.Len(t, inner.Requests(), n)
					time.Sleep(time.Nanosecond)
					synctest.Wait()
					require.Len(t, inner.Requests(), n+1, "after %v", time.Since(start))
				}
			}, append(c.options, redelivery.WithAckTimeout(10*time.Second), testkit.FromBroker)...)
		})
	}
}

// timed runs a test with an ack timeout of ten seconds and a nack delay of one second.
func timed(t *testing.T, test func(*testing.T, *redelivery.Consumer, *testkit.Fake)) {
	t.Helper()
	testkit.WrapFake(t, func(t *testing.T, c *redelivery.Consumer, inner *testkit.Fake, _ *bytes.Buffer) { test(t, c, inner) },
		redelivery.WithAckTimeout(10*time.Second), redelivery.WithNackRedeliveryDelay(time.Second), testkit.FromBroker)
}

func TestSettlingEndsTheAckTimeout(t *testing.T) {
	for name, settle := range map[string]func(*redelivery.Consumer, pulsar.Message) error{
		"Ack":             func(c *redelivery.Consumer, m pulsar.Message) error { return c.Ack(m) },
		"AckID":           func(c *redelivery.Consumer, m pulsar.Message) error { return c.AckID(m.ID()) },
		"AckIDList":       func(c *redelivery.Consumer, m pulsar.Message) error { return c.AckIDList([]pulsar.MessageID{m.ID()}) },
		"AckCumulative":   func(c *redelivery.Consumer, m pulsar.Message) error { return c.AckCumulative(m) },
		"AckIDCumulative": func(c *redelivery.Consumer, m pulsar.Message) error { return c.AckIDCumulative(m.ID()) },
		"AckWithTxn": func(c *redelivery.Consumer, m pulsar.Message) error {
			return c.AckWithTxn(m, struct{ pulsar.Transaction }{})
		},
		"Seek":        func(c *redelivery.Consumer, m pulsar.Message) error { return c.Seek(m.ID()) },
		"Unsubscribe": func(c *redelivery.Consumer, m pulsar.Message) error { return c.Unsubscribe() },
		"Close":       func(c *redelivery.Consumer, m pulsar.Message) error { c.Close(); return nil },
	} {
		t.Run(name, func(t *testing.T) {
			timed(t, func(t *testing.T, c *redelivery.Consumer, inner *testkit.Fake) {
				inner.Deliver(1)
				msg := testkit.Receive(t, c)
				time.Sleep(9 * time.Second)
				require.NoError(t, settle(c, msg))
				time.Sleep(time.Hour)
				require.Empty(t, inner.Requests())
			})
		})
	}
}

func TestAckAfterTheTimeoutSettlesTheNextDeliveryToo(t *testing.T) {
	t.Parallel()
	b := testkit.NewBroker(t)
	topic := b.NewTopic(0)
	c := b.Subscribe(b.Options(topic, pulsar.Shared), redelivery.WithAckTimeout(time.Second))
	b.Send(topic, 1, false)
	first := testkit.Receive(t, c)
	testkit.Receive(t, c)
	require.NoError(t, c.Ack(first))
	testkit.ReceiveNothing(t, c, 2*time.Second)
	b.Settles(topic, 0)
}

func TestInProgressRenewsTheAckTimeout(t *testing.T) {
	timed(t, func(t *testing.T, c *redelivery.Consumer, inner *testkit.Fake) {
		require.Error(t, c.InProgress(nil))
		inner.Deliver(1)
		msg := testkit.Receive(t, c)
		for range 5 {
			time.Sleep(9 * time.Second)
			require.NoError(t, c.InProgress(msg))
		}
		require.Zero(t, c.RedeliveryCount(msg))
		time.Sleep(10*time.Second - 1)
		synctest.Wait()
		require.Empty(t, inner.Requests())
		time.Sleep(time.Nanosecond)
		synctest.Wait()
		require.Len(t, inner.Requests(), 1)
		require.ErrorIs(t, c.InProgress(msg), redelivery.ErrNotInFlight)
		inner.Deliver(1)
		again := testkit.Receive(t, c)
		require.NoError(t, c.InProgress(again))
		c.Nack(again)
		require.ErrorIs(t, c.InProgress(again), redelivery.ErrNotInFlight)
		require.NoError(t, c.Ack(again))
		require.ErrorIs(t, c.InProgress(again), redelivery.ErrNotInFlight)
	})
	testkit.WrapFake(t, func(t *testing.T, c *redelivery.Consumer, inner *testkit.Fake, _ *bytes.Buffer) {
		inner.Deliver(1)
		require.NoError(t, c.InProgress(testkit.Receive(t, c)), "InProgress failed without an ack timeout")
	})
}

func TestChanStartsTheClockWhenTheMessageIsTaken(t *testing.T) {
	timed(t, func(t *testing.T, c *redelivery.Consumer, inner *testkit.Fake) {
		messages := c.Chan()
		inner.Deliver(1)
		time.Sleep(time.Hour)
		require.Empty(t, inner.Requests())
		<-messages
		time.Sleep(10*time.Second - 1)
		synctest.Wait()
		require.Empty(t, inner.Requests())
		time.Sleep(time.Nanosecond)
		synctest.Wait()
		require.Len(t, inner.Requests(), 1)
	})
}
