package suite

import (
	"bytes"
	"context"
	"errors"
	"math"
	"testing"
	"testing/synctest"
	"time"

	"github.com/apache/pulsar-client-go/pulsar"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pulsar-redelivery/redelivery"
	"github.com/pulsar-redelivery/redelivery/backoff"
)

func TestAckTimeoutOptions(t *testing.T) {
	for want, options := range map[string][]redelivery.Option{
		"WithAckTimeout is -1s":                   {redelivery.WithAckTimeout(-time.Second)},
		"WithAckTimeoutRedeliveryBackoff: ":       {redelivery.WithAckTimeout(time.Second), redelivery.WithAckTimeoutRedeliveryBackoff(nil)},
		"WithAckTimeoutRedeliveryBackoff is set,": {redelivery.WithAckTimeoutRedeliveryBackoff(backoff.Fixed(time.Second))},
	} {
		_, err := prepared(pulsar.ConsumerOptions{}, options...)
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
			wrapped(t, func(t *testing.T, c2 *redelivery.Consumer, inner *fake, _ *bytes.Buffer) {
				for n, seconds := range c.want {
					inner.ch <- pulsar.ConsumerMessage{Consumer: inner, Message: message{id: pulsar.NewMessageID(1, 1, 0, 0), count: uint32(n)}}
					time.Sleep(20 * time.Second) // prefetched: no clock runs
					start := time.Now()
					require.EqualValues(t, n, c2.RedeliveryCount(receive(t, c2)))
					time.Sleep(time.Duration(seconds)*time.Second - 1)
					synctest.Wait()
					require.Len(t, inner.requests(), n)
					time.Sleep(time.Nanosecond)
					synctest.Wait()
					require.Len(t, inner.requests(), n+1, "after %v", time.Since(start))
				}
			}, append(c.options, redelivery.WithAckTimeout(10*time.Second), atBroker)...)
		})
	}
}

// timed runs a test with an ack timeout of ten seconds and nacks of one.
func timed(t *testing.T, test func(*testing.T, *redelivery.Consumer, *fake)) {
	t.Helper()
	wrapped(t, func(t *testing.T, c *redelivery.Consumer, inner *fake, _ *bytes.Buffer) { test(t, c, inner) },
		redelivery.WithAckTimeout(10*time.Second), redelivery.WithNackRedeliveryDelay(time.Second), atBroker)
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
			timed(t, func(t *testing.T, c *redelivery.Consumer, inner *fake) {
				inner.deliver(1)
				msg := receive(t, c)
				time.Sleep(9 * time.Second)
				require.NoError(t, settle(c, msg))
				time.Sleep(time.Hour)
				require.Empty(t, inner.requests())
			})
		})
	}
}

func (f *fake) Unsubscribe() error { return nil }

func TestNackEndsTheAckTimeout(t *testing.T) {
	timed(t, func(t *testing.T, c *redelivery.Consumer, inner *fake) {
		inner.deliver(1)
		msg := receive(t, c)
		time.Sleep(9*time.Second + ms(500))
		c.Nack(msg)
		time.Sleep(time.Second - 1)
		synctest.Wait()
		require.Empty(t, inner.requests(), "at the nack's time, not at the timeout's")
		time.Sleep(time.Nanosecond)
		synctest.Wait()
		require.Len(t, inner.requests(), 1)
		time.Sleep(20 * time.Second)
		require.Len(t, inner.requests(), 1)
	})
}

func TestInProgress(t *testing.T) {
	timed(t, func(t *testing.T, c *redelivery.Consumer, inner *fake) {
		require.Error(t, c.InProgress(nil))
		inner.deliver(1)
		msg := receive(t, c)
		for range 5 {
			time.Sleep(9 * time.Second)
			require.NoError(t, c.InProgress(msg))
		}
		require.Zero(t, c.RedeliveryCount(msg))
		time.Sleep(10*time.Second - 1)
		synctest.Wait()
		require.Empty(t, inner.requests())
		time.Sleep(time.Nanosecond)
		synctest.Wait()
		require.Len(t, inner.requests(), 1)
		require.ErrorIs(t, c.InProgress(msg), redelivery.ErrNotInFlight)
		inner.deliver(1)
		again := receive(t, c)
		require.NoError(t, c.InProgress(again))
		c.Nack(again)
		require.ErrorIs(t, c.InProgress(again), redelivery.ErrNotInFlight)
		require.NoError(t, c.Ack(again))
		require.ErrorIs(t, c.InProgress(again), redelivery.ErrNotInFlight)
	})
	wrapped(t, func(t *testing.T, c *redelivery.Consumer, inner *fake, _ *bytes.Buffer) {
		inner.deliver(1)
		require.NoError(t, c.InProgress(receive(t, c)), "without an ack timeout there is nothing to do")
	})
}

func TestAckAfterTheTimeout(t *testing.T) {
	timed(t, func(t *testing.T, c *redelivery.Consumer, inner *fake) {
		inner.deliver(1)
		msg := receive(t, c)
		time.Sleep(11 * time.Second)
		c.Nack(msg) // too late: it changes nothing
		require.NoError(t, c.Ack(msg))
		require.Equal(t, []pulsar.MessageID{msg.ID()}, inner.acks())
		newest := inner.deliver(1)
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		_, err := c.Receive(ctx)
		require.ErrorIs(t, err, context.DeadlineExceeded, "the copy is not handed out")
		synctest.Wait()
		require.Equal(t, []pulsar.MessageID{msg.ID(), newest}, inner.acks())
	})
}

func TestAFailedAckDoesNotOutliveTheTimeout(t *testing.T) {
	timed(t, func(t *testing.T, c *redelivery.Consumer, inner *fake) {
		inner.deliver(1)
		msg := receive(t, c)
		inner.failAcks(errors.New("no ack today"))
		require.Error(t, c.Ack(msg))
		time.Sleep(10 * time.Second)
		synctest.Wait()
		require.Len(t, inner.requests(), 1)
	})
}

func TestChanStartsTheClockWhenTheMessageIsTaken(t *testing.T) {
	timed(t, func(t *testing.T, c *redelivery.Consumer, inner *fake) {
		messages := c.Chan()
		inner.deliver(1)
		time.Sleep(time.Hour)
		require.Empty(t, inner.requests())
		<-messages
		time.Sleep(10*time.Second - 1)
		synctest.Wait()
		require.Empty(t, inner.requests())
		time.Sleep(time.Nanosecond)
		synctest.Wait()
		require.Len(t, inner.requests(), 1)
	})
}
