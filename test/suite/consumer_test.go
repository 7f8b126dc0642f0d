package suite

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"log/slog"
	"os"
	"os/exec"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/apache/pulsar-client-go/pulsar"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pulsar-redelivery/redelivery"
	"github.com/pulsar-redelivery/redelivery/backoff"
	"github.com/pulsar-redelivery/redelivery/internal/leaktest"
	"github.com/pulsar-redelivery/redelivery/internal/logtest"
	"github.com/pulsar-redelivery/redelivery/internal/race"
)

func TestMain(m *testing.M) {
	parallel := "48" // tests against a broker mostly wait
	if race.Enabled {
		parallel = "12" // and otherwise take ten times as long
	}
	_ = flag.Set("test.parallel", parallel)
	if os.Getenv(leaking) != "" {
		os.Exit(logtest.Quiet{M: m}.Run())
	}
	leaktest.Main(m)
}

const leaking = "REDELIVERY_TEST_LEAKING"

// elsewhere runs a test in a process of its own, where goroutines may leak: upstream's outlive Unsubscribe, and Close
// of a pattern's consumer does not wait for who looks for topics. It reports false in that process.
func elsewhere(t *testing.T) bool {
	if os.Getenv(leaking) != "" {
		return false
	}
	cmd := exec.Command(os.Args[0], "-test.v", "-test.run", "^"+strings.ReplaceAll(t.Name(), "/", "$/^")+"$")
	cmd.Env = append(os.Environ(), leaking+"=1")
	said, err := cmd.CombinedOutput()
	require.NoError(t, err, string(said))
	require.Contains(t, string(said), "--- PASS: "+t.Name())
	return true
}

// wrapped runs a test with a Consumer around a fake one, in virtual time.
func wrapped(t *testing.T, test func(*testing.T, *redelivery.Consumer, *fake, *bytes.Buffer), options ...redelivery.Option) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		inner := newFake()
		var log bytes.Buffer
		c, err := redelivery.Wrap(inner, append(options,
			redelivery.WithLogger(slog.New(slog.NewTextHandler(&log, nil))))...)
		require.NoError(t, err)
		synctest.Wait()
		log.Reset() // of the warning that the consumer was not prepared
		defer c.Close()
		test(t, c, inner, &log)
	})
}

func TestDelaysAreExact(t *testing.T) {
	wrapped(t, func(t *testing.T, c *redelivery.Consumer, inner *fake, _ *bytes.Buffer) {
		start := time.Now()
		for n, count := range []uint32{5, 0} {
			id := pulsar.NewMessageID(1, int64(n), 0, 0)
			inner.ch <- pulsar.ConsumerMessage{Consumer: inner, Message: message{id: id, count: count}}
			msg := receive(t, c)
			require.Equal(t, count, c.RedeliveryCount(msg))
			c.Nack(msg)
			c.Nack(msg) // a second nack changes nothing
		}
		assert.Equal(t, 2, c.Stats().Waiting)
		time.Sleep(ms(100) - 1)
		synctest.Wait()
		require.Empty(t, inner.requests())
		time.Sleep(time.Nanosecond)
		synctest.Wait()
		require.Len(t, inner.requests(), 1)
		require.EqualValues(t, 1, inner.requests()[0].EntryID())
		time.Sleep(ms(3200) - 1 - time.Since(start))
		synctest.Wait()
		require.Len(t, inner.requests(), 1)
		time.Sleep(time.Nanosecond)
		synctest.Wait()
		require.Len(t, inner.requests(), 2)
	}, redelivery.WithNackRedeliveryBackoff(backoff.Exponential{Min: ms(100), Max: time.Minute, Multiplier: 2}), atBroker)
}

// atBroker has nacked messages wait at the broker.
var atBroker = redelivery.WithRedeliveryFrom(redelivery.FromBroker)

func TestAckEndsADelay(t *testing.T) {
	wrapped(t, func(t *testing.T, c *redelivery.Consumer, inner *fake, _ *bytes.Buffer) {
		inner.deliver(1)
		msg := receive(t, c)
		c.Nack(msg)
		refused := errors.New("no ack today")
		inner.failAcks(refused)
		require.ErrorIs(t, c.Ack(msg), refused)
		require.Equal(t, 1, c.Stats().Waiting, "still waits after an ack that failed")
		inner.failAcks(nil)
		require.NoError(t, c.Ack(msg))
		require.NoError(t, c.Ack(msg))
		time.Sleep(time.Hour)
		require.Empty(t, inner.requests())
		require.Zero(t, c.Stats().Waiting)
	})
}

func TestAnEarlyCopyIsHeldUntilDue(t *testing.T) {
	wrapped(t, func(t *testing.T, c *redelivery.Consumer, inner *fake, _ *bytes.Buffer) {
		inner.deliver(1)
		start := time.Now()
		old := receive(t, c)
		c.Nack(old)
		newest := inner.deliver(1) // as after an unload
		msg, err := c.Receive(context.Background())
		require.NoError(t, err)
		require.Equal(t, time.Minute, time.Since(start))
		require.EqualValues(t, 1, c.RedeliveryCount(msg))
		require.Empty(t, inner.requests(), "the copy was here")
		require.EqualValues(t, 1, c.Stats().Buffered)
		require.NoError(t, c.Ack(old))
		require.Equal(t, []pulsar.MessageID{newest}, inner.acks(), "acknowledged by the id of the newest delivery")
	})
}

// Where a nacked message waits: in memory, from which it comes back on time, or at the broker, which is asked for it
// then.
func TestWhereANackedMessageWaits(t *testing.T) {
	const memory, broker = true, false
	for name, test := range map[string]struct {
		kind    pulsar.SubscriptionType
		options []redelivery.Option
		batch   int32
		want    bool
	}{
		"Exclusive":              {pulsar.Exclusive, nil, 0, memory},
		"Failover":               {pulsar.Failover, nil, 0, memory},
		"Key_Shared":             {pulsar.KeyShared, nil, 0, memory},
		"Shared":                 {pulsar.Shared, nil, 0, memory},
		"Shared, from broker":    {pulsar.Shared, []redelivery.Option{redelivery.WithRedeliveryFrom(redelivery.FromBroker)}, 0, broker},
		"Shared, batch":          {pulsar.Shared, nil, 3, memory},
		"Shared, from memory":    {pulsar.Shared, []redelivery.Option{redelivery.WithRedeliveryFrom(redelivery.FromMemory)}, 0, memory},
		"Exclusive, from broker": {pulsar.Exclusive, []redelivery.Option{redelivery.WithRedeliveryFrom(redelivery.FromBroker)}, 0, broker},
		"holds nothing":          {pulsar.Exclusive, []redelivery.Option{redelivery.WithMemoryLimit(0)}, 0, broker},
		"does not fit":           {pulsar.KeyShared, []redelivery.Option{redelivery.WithMemoryLimit(500)}, 0, broker},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c, inner := newPrepared(t, test.kind, test.options...)
				inner.deliverBatch(1, test.batch)
				msg, start := receive(t, c), time.Now()
				require.NoError(t, c.NackWithDelay(msg, ms(500)))
				if test.want == broker {
					for len(inner.requests()) == 0 {
						time.Sleep(time.Millisecond)
					}
					require.Equal(t, ms(500), time.Since(start).Truncate(ms(5)))
					inner.deliverBatch(1, test.batch)
				}
				again := receive(t, c)
				require.Equal(t, ms(500), time.Since(start).Truncate(ms(5)))
				require.EqualValues(t, 1, again.RedeliveryCount())
				c.Nack(msg) // of the first hand-over: too late
				require.Zero(t, c.Stats().Waiting)
				require.NoError(t, c.Ack(again))
				time.Sleep(time.Hour)
				require.Len(t, inner.requests(), map[bool]int{memory: 0, broker: 1}[test.want])
				require.Zero(t, c.Stats().BufferedBytes)
			})
		})
	}
}

func TestAnUnansweredRequestIsRepeated(t *testing.T) {
	wrapped(t, func(t *testing.T, c *redelivery.Consumer, inner *fake, _ *bytes.Buffer) {
		inner.deliver(1)
		c.Nack(receive(t, c))
		time.Sleep(time.Hour)
		require.Len(t, inner.requests(), 1, "the answer may be in the queue: nobody receives")
		go func() { _, _ = c.Receive(context.Background()) }()
		time.Sleep(time.Hour)
		require.Len(t, inner.requests(), 10)
		require.Zero(t, c.Stats().Waiting, "what went elsewhere is forgotten")
	}, atBroker)
}

func TestChanHandsOutTheConsumer(t *testing.T) {
	wrapped(t, func(t *testing.T, c *redelivery.Consumer, inner *fake, _ *bytes.Buffer) {
		inner.deliver(1)
		cm := <-c.Chan()
		require.Same(t, c, cm.Consumer)
		cm.Nack(cm)
		time.Sleep(time.Minute)
		synctest.Wait()
		require.Len(t, inner.requests(), 1)
	}, atBroker)
}

func TestReceiveHonoursItsContext(t *testing.T) {
	wrapped(t, func(t *testing.T, c *redelivery.Consumer, _ *fake, _ *bytes.Buffer) {
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		go func() { _, _ = c.Receive(context.Background()) }() // has the turn
		synctest.Wait()
		_, err := c.Receive(ctx)
		require.ErrorIs(t, err, context.DeadlineExceeded)
	})
}

func TestSeekForgets(t *testing.T) {
	wrapped(t, func(t *testing.T, c *redelivery.Consumer, inner *fake, _ *bytes.Buffer) {
		inner.deliver(1)
		c.Nack(receive(t, c))
		go func() { _, _ = c.Receive(context.Background()) }() // gives way
		synctest.Wait()
		require.NoError(t, c.Seek(pulsar.EarliestMessageID()))
		require.Zero(t, c.Stats().Waiting)
		time.Sleep(time.Hour)
		require.Empty(t, inner.requests())
	})
}

func (f *fake) Seek(pulsar.MessageID) error { return nil }

func TestCumulativeAckEndsDelays(t *testing.T) {
	wrapped(t, func(t *testing.T, c *redelivery.Consumer, inner *fake, _ *bytes.Buffer) {
		var msgs []pulsar.Message
		for n := range int64(5) {
			inner.deliver(n)
			msgs = append(msgs, receive(t, c))
			c.Nack(msgs[n])
		}
		other := pulsar.NewMessageID(2, 0, 0, 1)
		inner.ch <- pulsar.ConsumerMessage{Consumer: inner, Message: message{id: other, topic: "other"}}
		c.Nack(receive(t, c))
		require.NoError(t, c.AckCumulative(msgs[3]))
		require.Equal(t, 2, c.Stats().Waiting)
		time.Sleep(time.Minute)
		synctest.Wait()
		require.ElementsMatch(t, []pulsar.MessageID{msgs[4].ID(), other}, inner.requests())
	}, atBroker)
}
