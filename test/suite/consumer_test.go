package suite

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"io"
	"log/slog"
	"math"
	"os"
	"os/exec"
	"reflect"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/apache/pulsar-client-go/pulsar"
	"github.com/apache/pulsar-client-go/pulsar/crypto"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pulsar-redelivery/redelivery"
	"github.com/pulsar-redelivery/redelivery/backoff"
	"github.com/pulsar-redelivery/redelivery/internal/leaktest"
	"github.com/pulsar-redelivery/redelivery/reconsume"
)

func TestMain(m *testing.M) {
	_ = flag.Set("test.parallel", "24") // tests against a broker mostly wait
	slog.SetLogLoggerLevel(slog.LevelWarn)
	if os.Getenv(leaking) != "" {
		os.Exit(m.Run())
	}
	leaktest.Main(m)
}

const leaking = "REDELIVERY_TEST_LEAKING"

// elsewhere runs a test in a process of its own, where goroutines may leak: upstream's outlive Unsubscribe, and Close of a
// pattern's consumer does not wait for who looks for topics. It reports false in that process.
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

func TestInvalidOptions(t *testing.T) {
	policy := backoff.Exponential{}
	type opts = pulsar.ConsumerOptions
	for _, c := range []struct {
		opts    opts
		options []redelivery.Option
		want    []string
	}{
		{opts{}, []redelivery.Option{redelivery.WithNackRedeliveryBackoff(nil)},
			[]string{"WithNackRedeliveryBackoff", "policy is nil"}},
		{opts{}, []redelivery.Option{redelivery.WithNackRedeliveryBackoff(backoff.Func(nil))}, []string{"Func is nil"}},
		{opts{}, []redelivery.Option{redelivery.WithNackRedeliveryBackoff(backoff.Exponential{Min: 2, Max: 1})},
			[]string{"WithNackRedeliveryBackoff", "Exponential.Max is 1ns"}},
		{opts{}, []redelivery.Option{redelivery.WithNackRedeliveryBackoff(backoff.Exponential{Multiplier: math.NaN()})},
			[]string{"Multiplier is NaN"}},
		{opts{}, []redelivery.Option{redelivery.WithNackRedeliveryDelay(-time.Second)},
			[]string{"WithNackRedeliveryDelay is -1s", "0 or more"}},
		{opts{}, []redelivery.Option{redelivery.WithRedeliveryResolution(0)}, []string{"WithRedeliveryResolution is 0s", "1ms to 1m0s"}},
		{opts{}, []redelivery.Option{redelivery.WithRedeliveryResolution(time.Hour)}, []string{"is 1h0m0s"}},
		{opts{}, []redelivery.Option{redelivery.WithHoldLimit(-1)}, []string{"WithHoldLimit is -1"}},
		{opts{}, []redelivery.Option{redelivery.WithInnerNackDelay(-1)}, []string{"WithInnerNackDelay is -1ns"}},
		{opts{}, []redelivery.Option{redelivery.WithInnerNackDelay(time.Second)}, []string{"WithInnerNackDelay", "Wrap"}},
		{opts{}, []redelivery.Option{redelivery.WithLogger(nil)}, []string{"WithLogger is nil"}},
		{opts{}, []redelivery.Option{redelivery.WithHoldLimit(1), nil}, []string{"option 2 is nil"}},
		{opts{}, []redelivery.Option{redelivery.WithNackRedeliveryDelay(1), redelivery.WithNackRedeliveryBackoff(policy)},
			[]string{"WithNackRedeliveryDelay and WithNackRedeliveryBackoff"}},
		{opts{NackRedeliveryDelay: -1}, nil, []string{"ConsumerOptions.NackRedeliveryDelay is -1ns"}},
		{opts{NackRedeliveryDelay: 1, NackBackoffPolicy: policy}, nil,
			[]string{"ConsumerOptions.NackRedeliveryDelay and ConsumerOptions.NackBackoffPolicy"}},
		{opts{NackRedeliveryDelay: 1, EnableDefaultNackBackoffPolicy: true}, nil, []string{"EnableDefaultNackBackoffPolicy"}},
		{opts{NackRedeliveryDelay: 1}, []redelivery.Option{redelivery.WithNackRedeliveryBackoff(policy)},
			[]string{"WithNackRedeliveryBackoff and ConsumerOptions.NackRedeliveryDelay"}},
		{opts{NackBackoffPolicy: policy}, []redelivery.Option{redelivery.WithNackRedeliveryDelay(1)},
			[]string{"ConsumerOptions.NackBackoffPolicy"}},
		{opts{EnableZeroQueueConsumer: true}, nil, []string{"EnableZeroQueueConsumer"}},
		{opts{DLQ: &pulsar.DLQPolicy{DeadLetterTopic: "d"}}, nil, []string{"DLQ.MaxDeliveries is 0"}},
		{opts{Type: pulsar.Shared}, []redelivery.Option{redelivery.WithReconsumeBackoff(policy)}, []string{"WithReconsumeBackoff", "Subscribe"}},
		{opts{Type: pulsar.Shared}, []redelivery.Option{redelivery.WithReconsumeBackoff(nil)}, []string{"WithReconsumeBackoff"}},
		{opts{Type: pulsar.Failover}, []redelivery.Option{redelivery.WithReconsumeBackoff(policy)},
			[]string{"Type is Failover", "Shared or Key_Shared"}},
		{opts{}, []redelivery.Option{redelivery.WithReconsumer(&reconsume.Reconsumer{}), redelivery.WithNackRetryTopic(time.Second)},
			[]string{"Type is Exclusive", "Shared or Key_Shared"}},
		{opts{RetryEnable: true, Type: pulsar.Shared}, []redelivery.Option{redelivery.WithNackRetryTopic(time.Second)},
			[]string{"WithNackRetryTopic is 1s", "WithReconsumer"}},
		{opts{}, []redelivery.Option{redelivery.WithReconsumer(nil)}, []string{"WithReconsumer is nil"}},
	} {
		_, err := redelivery.Prepare(c.opts, c.options...)
		require.ErrorIs(t, err, redelivery.ErrInvalidOption)
		for _, want := range c.want {
			assert.ErrorContains(t, err, want)
		}
	}
	for _, option := range []redelivery.Option{redelivery.WithRedeliveryResolution(time.Second),
		redelivery.WithReconsumeBackoff(policy), redelivery.WithNackRetryTopic(time.Second)} {
		_, err := redelivery.Wrap(newFake(), option)
		assert.ErrorIs(t, err, redelivery.ErrInvalidOption)
	}
	prepared, err := redelivery.Prepare(opts{Type: pulsar.Shared, RetryEnable: true})
	require.NoError(t, err)
	inner := newFake()
	inner.ch = prepared.MessageChannel
	for _, option := range []redelivery.Option{redelivery.WithRedeliveryResolution(time.Second),
		redelivery.WithReconsumeBackoff(policy), redelivery.WithNackRetryTopic(time.Second), redelivery.WithReconsumer(&reconsume.Reconsumer{})} {
		_, err := redelivery.Wrap(inner, option)
		assert.ErrorIs(t, err, redelivery.ErrInvalidOption)
	}
	for _, topic := range []opts{{Topic: "non-persistent://public/default/t"},
		{Topics: []string{"a", "non-persistent://public/default/t"}}, {TopicsPattern: "non-persistent://public/default/t.*"}} {
		var log bytes.Buffer
		_, err = redelivery.Prepare(topic, logTo(&log))
		assert.NoError(t, err)
		assert.Contains(t, log.String(), "non-persistent")
	}
	_, err = redelivery.Wrap(nil)
	assert.ErrorContains(t, err, "consumer is nil")
	_, err = redelivery.Subscribe(nil, opts{})
	assert.ErrorContains(t, err, "client is nil")
}

func TestPrepareLeavesTheCallersOptionsAlone(t *testing.T) {
	bits := int64(3)
	opts := pulsar.ConsumerOptions{Topics: []string{"a", "b"}, NackRedeliveryDelay: time.Second, NackPrecisionBit: &bits,
		DLQ: &pulsar.DLQPolicy{MaxDeliveries: 3, DeadLetterTopic: "dead"}, Decryption: &pulsar.MessageDecryptionInfo{
			ConsumerCryptoFailureAction: crypto.ConsumerCryptoFailureActionDiscard}}
	prepared, err := redelivery.Prepare(opts, redelivery.WithRedeliveryResolution(ms(20)))
	require.NoError(t, err)
	assert.Equal(t, 3*ms(20)*15/16, prepared.NackRedeliveryDelay)
	assert.Equal(t, time.Second, opts.NackRedeliveryDelay)
	assert.EqualValues(t, 3, *opts.NackPrecisionBit)
	assert.NotSame(t, opts.DLQ, prepared.DLQ)
	assert.NotSame(t, opts.Decryption, prepared.Decryption)
	prepared.Topics[0] = "changed"
	assert.Equal(t, []string{"a", "b"}, opts.Topics)
}

// Upstream's interface grows. A new method would reach the inner consumer unseen, so somebody has to decide about it.
func TestEveryMethodOfConsumerIsDecidedAbout(t *testing.T) {
	const ours, inner = "ours", "passed on"
	decided := map[string]string{
		"Ack": ours, "AckCumulative": ours, "AckID": ours, "AckIDCumulative": ours, "AckIDList": ours, "AckWithTxn": ours,
		"Chan": ours, "Close": ours, "GetLastMessageIDs": inner, "Nack": ours, "NackID": ours, "Name": inner,
		"Receive": ours, "ReconsumeLater": ours, "ReconsumeLaterWithCustomProperties": ours, "Seek": ours,
		"SeekByTime": ours, "Subscription": inner, "Unsubscribe": ours, "UnsubscribeForce": ours,
	}
	upstream := reflect.TypeFor[pulsar.Consumer]()
	for i := range upstream.NumMethod() {
		name := upstream.Method(i).Name
		assert.Contains(t, decided, name, "pulsar.Consumer has a new method")
		delete(decided, name)
	}
	assert.Empty(t, decided, "pulsar.Consumer has lost methods")
	var _ pulsar.Consumer = (*redelivery.Consumer)(nil)
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
	}, redelivery.WithNackRedeliveryBackoff(backoff.Exponential{Min: ms(100), Max: time.Minute, Multiplier: 2}))
}

func TestAckEndsADelay(t *testing.T) {
	wrapped(t, func(t *testing.T, c *redelivery.Consumer, inner *fake, _ *bytes.Buffer) {
		inner.deliver(1)
		msg := receive(t, c)
		c.Nack(msg)
		inner.ackErr = errors.New("no ack today")
		require.ErrorIs(t, c.Ack(msg), inner.ackErr)
		require.Equal(t, 1, c.Stats().Waiting, "still waits after an ack that failed")
		inner.ackErr = nil
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
		require.EqualValues(t, 1, c.Stats().Held)
		require.NoError(t, c.Ack(old))
		require.Equal(t, []pulsar.MessageID{newest}, inner.acked, "acknowledged by the id of the newest delivery")
	})
}

// Where a nacked message waits: in memory, from which it comes back on time, or at the broker, which is asked for it then.
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
		"Shared":                 {pulsar.Shared, nil, 0, broker},
		"Shared, batch":          {pulsar.Shared, nil, 3, memory},
		"Shared, from memory":    {pulsar.Shared, []redelivery.Option{redelivery.WithRedeliveryFrom(redelivery.FromMemory)}, 0, memory},
		"Exclusive, from broker": {pulsar.Exclusive, []redelivery.Option{redelivery.WithRedeliveryFrom(redelivery.FromBroker)}, 0, broker},
		"holds nothing":          {pulsar.Exclusive, []redelivery.Option{redelivery.WithHoldLimit(0)}, 0, broker},
		"does not fit":           {pulsar.KeyShared, []redelivery.Option{redelivery.WithHoldLimit(500)}, 0, broker},
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
				require.Zero(t, c.Stats().HeldBytes)
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
		require.Len(t, inner.requests(), 2)
		require.Zero(t, c.Stats().Waiting, "what went elsewhere is forgotten")
	})
}

func TestCloseRedeliversNothing(t *testing.T) {
	wrapped(t, func(t *testing.T, c *redelivery.Consumer, inner *fake, _ *bytes.Buffer) {
		inner.deliver(1)
		inner.deliver(2)
		c.Nack(receive(t, c))
		msg := receive(t, c)
		received := make(chan error, 2)
		go func() { _, err := c.Receive(context.Background()); received <- err }()
		go func() { _, err := c.Receive(context.Background()); received <- err }()
		synctest.Wait()
		c.Close()
		require.ErrorIs(t, <-received, errFakeClosed)
		require.ErrorIs(t, <-received, errFakeClosed)
		_, err := c.Receive(context.Background())
		require.ErrorIs(t, err, errFakeClosed)
		c.Close()
		c.Nack(msg)
		time.Sleep(time.Hour)
		require.Empty(t, inner.requests())
		inner.closed = make(chan struct{})
	})
}

// slowToClose takes a second to close.
type slowToClose struct{ *fake }

func (s slowToClose) Close() {
	time.Sleep(time.Second)
	s.fake.Close()
}

// Upstream's Seek hangs when somebody else takes messages, and so does a zero-queue consumer's Close.
func TestNobodyReceivesWhileTheInnerConsumerCloses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		inner := newFake()
		c, err := redelivery.Wrap(slowToClose{inner}, logTo(io.Discard))
		require.NoError(t, err)
		received := make(chan error)
		go func() { _, err := c.Receive(context.Background()); received <- err }()
		go func() { _, err := c.Receive(context.Background()); received <- err }()
		synctest.Wait()
		go c.Close()
		time.Sleep(ms(900))
		require.Zero(t, inner.probes.Load())
		require.ErrorIs(t, <-received, errFakeClosed)
		require.ErrorIs(t, <-received, errFakeClosed)
		require.Error(t, c.Seek(pulsar.EarliestMessageID()))
	})
}

func TestReceiveReturnsWhenTheInnerConsumerIsGone(t *testing.T) {
	wrapped(t, func(t *testing.T, c *redelivery.Consumer, inner *fake, _ *bytes.Buffer) {
		inner.Close()
		for range 2 {
			_, err := c.Receive(context.Background())
			require.ErrorIs(t, err, errFakeClosed)
		}
		inner.closed = make(chan struct{})
	})
}

// The probe may take a message, and then it is not known whose.
func TestAHealthyPreparedConsumerIsNotProbed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		opts, err := redelivery.Prepare(pulsar.ConsumerOptions{})
		require.NoError(t, err)
		inner := newFake()
		inner.ch = opts.MessageChannel
		c, err := redelivery.Wrap(inner)
		require.NoError(t, err)
		received := make(chan error)
		go func() { _, err := c.Receive(context.Background()); received <- err }()
		time.Sleep(time.Hour)
		require.Zero(t, inner.probes.Load())
		close(inner.closed)
		opts.Interceptors.OnConsumerClose(inner, nil)
		require.ErrorIs(t, <-received, errFakeClosed)
		inner.closed = make(chan struct{})
		c.Close()
	})
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
	})
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

// Bad input is answered with an error that names it, or a warning and a count, and never with a panic.
func TestBadMessagesAndIDs(t *testing.T) {
	wrapped(t, func(t *testing.T, c *redelivery.Consumer, inner *fake, log *bytes.Buffer) {
		var (
			nilMsg   pulsar.Message
			empty    = pulsar.ConsumerMessage{}
			idless   = message{}
			other    = message{id: foreignID{pulsar.NewMessageID(7, 7, 0, 0)}}
			emptyID  = foreignID{}
			foreign  = other.id
			failures uint64
		)
		for _, msg := range []pulsar.Message{nilMsg, empty, &empty, idless} {
			assert.ErrorContains(t, c.Ack(msg), "want")
			assert.ErrorContains(t, c.AckCumulative(msg), "want")
			assert.ErrorContains(t, c.AckWithTxn(msg, nil), "want")
			assert.ErrorContains(t, c.NackWithDelay(msg, 0), "want")
			c.Nack(msg)
			c.ReconsumeLater(msg, 0)
			assert.Zero(t, c.RedeliveryCount(msg))
			failures += 3
			assert.Equal(t, failures, c.Stats().Failed)
		}
		for _, id := range []pulsar.MessageID{nil, emptyID, (*foreignID)(nil)} {
			assert.ErrorContains(t, c.AckID(id), "want")
			assert.ErrorContains(t, c.AckIDCumulative(id), "want")
			assert.ErrorContains(t, c.AckIDList([]pulsar.MessageID{id}), "(1 of 1)")
			assert.ErrorContains(t, c.Seek(id), "want")
			c.NackID(id)
			failures++
			assert.Equal(t, failures, c.Stats().Failed)
		}
		assert.ErrorContains(t, c.NackWithDelay(other, 0), "foreignID")
		assert.ErrorContains(t, c.Seek(foreign), "foreignID")
		c.Nack(other)
		c.NackID(foreign)
		assert.Equal(t, failures+2, c.Stats().Failed)
		assert.Contains(t, log.String(), "redelivery: nack failed")
		assert.Error(t, c.AckWithTxn(other, nil))

		inner.deliver(1)
		msg := receive(t, c)
		c.ReconsumeLater(msg, 0) // there is no retry topic: the message is nacked
		assert.Contains(t, log.String(), redelivery.ErrNoRetryTopic.Error())
		assert.Equal(t, 1, c.Stats().Waiting)
	})
}

func TestForeignMessageAndIDOfAKnownMessage(t *testing.T) {
	wrapped(t, func(t *testing.T, c *redelivery.Consumer, inner *fake, _ *bytes.Buffer) {
		id := inner.deliver(1)
		receive(t, c)
		c.Nack(message{id: foreignID{pulsar.NewMessageID(1, 1, 0, 0)}})
		require.Equal(t, 1, c.Stats().Waiting)
		require.NoError(t, c.AckID(foreignID{id}))
		require.Equal(t, []pulsar.MessageID{id}, inner.acked)
	})
}

func TestNackIDOfAnUnknownMessage(t *testing.T) {
	wrapped(t, func(t *testing.T, c *redelivery.Consumer, inner *fake, _ *bytes.Buffer) {
		c.NackID(pulsar.NewMessageID(3, 3, 0, 0))
		time.Sleep(time.Minute)
		synctest.Wait()
		require.Len(t, inner.requests(), 1, "by the policy, not at once")
		inner.deliver(3)
		time.Sleep(time.Hour)
		require.Zero(t, c.Stats().Failed)
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
	})
}
