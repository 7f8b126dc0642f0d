package retry

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/apache/pulsar-client-go/pulsar"
	"github.com/stretchr/testify/require"

	"github.com/pulsar-redelivery/redelivery"
	"github.com/pulsar-redelivery/redelivery/internal/waittest"
	"github.com/pulsar-redelivery/redelivery/pulsartest"
	"github.com/pulsar-redelivery/redelivery/test/testkit"
)

// counted is an interceptor that counts the acknowledgements of a consumer, and may close the consumer at one of them.
type counted struct {
	acks  atomic.Int32
	close atomic.Int32 // the number of the acknowledgement at which to close the consumer; 0 for none
}

func (*counted) BeforeConsume(pulsar.ConsumerMessage)                   {}
func (*counted) OnNegativeAcksSend(pulsar.Consumer, []pulsar.MessageID) {}
func (x *counted) OnAcknowledge(c pulsar.Consumer, _ pulsar.MessageID) {
	if x.acks.Add(1) == x.close.Load() {
		c.Close()
	}
}

// Dead letters keep the order of their nacks. Retries need no order, since their delays decide when they come.
func TestManyPublishesKeepTheirOrder(t *testing.T) {
	t.Parallel()
	for name, move := range map[string]bool{"dead letters": false, "moves": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			const n = 2000
			b := testkit.NewBroker(t)
			topic := b.NewTopic(0)
			c, out := publishingConsumer(b, topic, move)
			b.Send(topic, n, false)
			for i := range n {
				msg := testkit.Receive(t, c)
				require.Equal(t, fmt.Sprint(i), string(msg.Payload()))
				c.Nack(msg)
			}
			seen := map[string]bool{}
			for i := range n {
				payload := string(testkit.Next(t, out, 10*time.Second).Payload())
				require.False(t, seen[payload], "%s again", payload)
				seen[payload] = true
				if !move {
					require.Equal(t, fmt.Sprint(i), payload)
				}
			}
			b.Settles(topic, 0)
			require.Zero(t, c.Stats().Failed)
			require.Zero(t, c.Stats().BufferedBytes)
		})
	}
}

// The nack's delay of 0 is over before the dead letter is published.
func TestReasonOfNackIsInTheDeadLetter(t *testing.T) {
	t.Parallel()
	const n = 300
	b := testkit.NewBroker(t)
	topic := b.NewTopic(0)
	c, out := publishingConsumer(b, topic, false, redelivery.WithNackRedeliveryDelay(0))
	go func() {
		for {
			msg, err := c.Receive(context.Background())
			if err != nil {
				return
			}
			if err := c.NackWithReason(msg, errors.New("because")); err != nil {
				t.Error(err)
			}
		}
	}()
	b.Send(topic, n, false)
	for range n {
		require.Equal(t, "because", testkit.Next(t, out, 10*time.Second).Properties()["EXCEPTION_MESSAGE"])
	}
	b.Settles(topic, 0)
}

// Another producer has exclusive access to the dead letter topic, so each attempt fails at once. The Consumer waits
// between attempts, although the nack delay is 0.
func TestRefusedDeadLettersArePaced(t *testing.T) {
	t.Parallel()
	b := testkit.NewBroker(t)
	topic := b.NewTopic(0)
	other, err := b.Client.CreateProducer(pulsar.ProducerOptions{Topic: topic + "-" + testkit.Subscription + pulsar.DlqTopicSuffix,
		ProducerAccessMode: pulsar.ProducerAccessModeExclusive})
	require.NoError(t, err)
	opts := b.Options(topic, pulsar.Shared)
	opts.DLQ = &pulsar.DLQPolicy{MaxDeliveries: 1}
	c := b.Subscribe(opts, redelivery.WithNackRedeliveryDelay(0))
	b.Send(topic, 1, false)
	c.Nack(testkit.Receive(t, c))
	go func() { _, _ = c.Receive(context.Background()) }() // Receive tries to publish the dead letter again
	require.Eventually(t, func() bool { return c.Stats().Failed > 0 }, 10*time.Second, 10*time.Millisecond)
	failed := c.Stats().Failed
	time.Sleep(3 * time.Second)
	require.Less(t, c.Stats().Failed, failed+10)
	other.Close()
	b.Settles(topic, 0)
}

// publishingConsumer returns a Consumer that publishes each message at its first nack, and a consumer of the published
// messages.
func publishingConsumer(b *testkit.Broker, topic string, move bool, options ...redelivery.Option) (c *redelivery.Consumer, out pulsar.Consumer) {
	b.T.Helper()
	opts := b.Options(topic, pulsar.Shared)
	opts.DLQ = &pulsar.DLQPolicy{MaxDeliveries: 1}
	published := topic + "-" + testkit.Subscription + pulsar.DlqTopicSuffix
	if move {
		opts.DLQ.MaxDeliveries, opts.RetryEnable = 10, true
		published = topic + "-" + testkit.Subscription + pulsar.RetryTopicSuffix
		options = append(options, redelivery.WithNackRetryTopic(time.Minute),
			redelivery.WithNackRedeliveryDelay(time.Hour))
	}
	return b.Subscribe(opts, options...), subscribeReader(b, published)
}

// An interceptor closes the Consumer while many messages are being published. The broker keeps the unacknowledged
// messages.
func TestCloseInPublishCallbackLosesNothing(t *testing.T) {
	t.Parallel()
	const n = 1000
	b := testkit.NewBrokerInProcess(t, pulsar.ClientOptions{})
	topic := b.NewTopic(0)
	x := &counted{}
	x.close.Store(n / 4)
	opts := b.Options(topic, pulsar.Shared)
	opts.DLQ, opts.Interceptors = &pulsar.DLQPolicy{MaxDeliveries: 1}, pulsar.ConsumerInterceptors{x}
	c := b.Subscribe(opts)
	dead := b.SubscribeDeadLetters(topic)
	b.Send(topic, n, false)
	for range n {
		msg, err := c.Receive(t.Context())
		if err != nil {
			break // the Consumer is closed
		}
		c.Nack(msg)
	}
	c.Close()
	seen := map[string]bool{}
	again := b.Subscribe(b.Options(topic, pulsar.Shared))
	for end := time.After(waittest.Limit); len(seen) < n; {
		select {
		case cm := <-again.Chan():
			seen[string(cm.Payload())] = true
		case cm := <-dead.Chan():
			seen[string(cm.Payload())] = true
		case <-end:
			require.FailNow(t, "messages are lost", "%d of %d were seen", len(seen), n)
		}
	}
}

// Many dead letters have no answer from the broker when Close is called. The Consumer acknowledges the messages whose
// dead letters were published, so that no message becomes two dead letters.
func TestCloseWaitsForPublishes(t *testing.T) { // not parallel: Close waits half a second at most
	for range 10 {
		if closesWhilePublishing(t) {
			return
		}
	}
	t.Fatal("the letters were never published while Close waited for them")
}

// closesWhilePublishing reports whether Close was so fast that it had waited for all publications.
func closesWhilePublishing(t *testing.T) (inTime bool) {
	const n = 500
	b := testkit.NewBrokerInProcess(t, pulsar.ClientOptions{})
	topic := b.NewTopic(0)
	c, out := publishingConsumer(b, topic, false)
	b.Send(topic, n, false)
	for range n {
		c.Nack(testkit.Receive(t, c))
	}
	dead := map[string]bool{string(testkit.Next(t, out, waittest.Limit).Payload()): true}
	begun := time.Now()
	c.Close()
	if time.Since(begun) > 400*time.Millisecond {
		return false
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	for msg, err := out.Receive(ctx); err == nil; msg, err = out.Receive(ctx) {
		dead[string(msg.Payload())] = true
	}
	testkit.Drain(t, b.Subscribe(b.Options(topic, pulsar.Shared)), time.Second, func(msg pulsar.Message) {
		require.False(t, dead[string(msg.Payload())], "%s is a dead letter, and still unacknowledged", msg.Payload())
	})
	return true
}

// The broker answers no publication for a while. In the end all messages become dead letters.
func TestUnansweredPublishesAreBounded(t *testing.T) {
	t.Parallel()
	const n = 3000
	b := testkit.NewBrokerInProcess(t, pulsar.ClientOptions{})
	topic := b.NewTopic(0)
	c, out := publishingConsumer(b, topic, false, redelivery.WithMemoryLimit(1<<20),
		redelivery.WithNackRedeliveryDelay(500*time.Millisecond))
	var answers atomic.Bool
	var sent atomic.Int32
	b.Send(topic, n, false)
	b.InProcess.SetHook(func(command pulsartest.Command) pulsartest.Verdict {
		switch command.Type {
		case "SEND":
			sent.Add(1)
		case "SEND_RECEIPT":
			if !answers.Load() {
				return pulsartest.Drop
			}
		}
		return pulsartest.Pass
	})
	for range n {
		c.Nack(testkit.Receive(t, c))
		require.LessOrEqual(t, c.Stats().BufferedBytes, int64(1<<20))
	}
	require.LessOrEqual(t, sent.Load(), int32(1000))
	answers.Store(true)
	b.InProcess.DropConnections()                 // the producer sends unanswered messages again
	go func() { _, _ = c.Receive(t.Context()) }() // Receive requests messages not in memory
	seen := map[string]bool{}
	for len(seen) < n {
		seen[string(testkit.Next(t, out, time.Minute).Payload())] = true // requests are repeated only every few seconds
	}
	b.Settles(topic, 0)
}

// The comparison is with upstream's own dead letters. The best of a few attempts counts, since tests of other packages
// use the same broker and processors.
func TestPublishesAreAsFastAsUpstream(t *testing.T) {
	testkit.NeedsRealBroker(t, "comparable speed")
	b := testkit.NewBroker(t)
	for attempt := 1; ; attempt++ {
		took := map[string]time.Duration{}
		for _, name := range []string{"plain", "dead letters", "moves", "plain again"} {
			took[name] = publishTime(b, name)
		}
		t.Logf("3,000 messages took %v", took)
		if plain := max(took["plain"], took["plain again"]); max(took["dead letters"], took["moves"]) < 2*plain {
			return
		}
		require.Less(t, attempt, 5, "none of the attempts was within twice the time of upstream")
	}
}

// publishTime returns the time from the first to the last of 3,000 dead letters or messages moved to the retry topic.
func publishTime(b *testkit.Broker, name string) time.Duration {
	const n = 3000
	topic := b.NewTopic(0)
	var c, out pulsar.Consumer
	if strings.HasPrefix(name, "plain") {
		opts := b.Options(topic, pulsar.Shared)
		opts.DLQ, opts.NackRedeliveryDelay = &pulsar.DLQPolicy{MaxDeliveries: 1,
			DeadLetterTopic: topic + "-dead"}, 300*time.Millisecond
		plain, err := b.Client.Subscribe(opts)
		require.NoError(b.T, err)
		c, out = plain, subscribeReader(b, topic+"-dead")
	} else {
		c, out = publishingConsumer(b, topic, name == "moves")
	}
	defer c.Close()
	b.Send(topic, n, false)
	go func() {
		for {
			msg, err := c.Receive(context.Background())
			if err != nil {
				return
			}
			c.Nack(msg)
		}
	}()
	var begin time.Time
	for i := range n {
		_ = testkit.Next(b.T, out, 30*time.Second)
		if i == 0 {
			begin = time.Now()
		}
	}
	return time.Since(begin)
}

// subscribeReader returns a consumer of all messages of a topic.
func subscribeReader(b *testkit.Broker, topic string) pulsar.Consumer {
	b.T.Helper()
	c, err := b.Client.Subscribe(pulsar.ConsumerOptions{Topic: topic, SubscriptionName: "out",
		SubscriptionInitialPosition: pulsar.SubscriptionPositionEarliest})
	require.NoError(b.T, err)
	b.T.Cleanup(c.Close)
	return c
}

func TestReconsumeDuringPublishIsRefused(t *testing.T) {
	t.Parallel()
	b := testkit.NewBrokerInProcess(t, pulsar.ClientOptions{})
	c := b.Subscribe(b.RetryOptions("t", 5))
	b.Send("t", 1, false)
	b.InProcess.Inject("SEND", "t-"+testkit.Subscription+"-RETRY", 1, pulsartest.Drop)
	msg := testkit.Receive(t, c)
	first := make(chan error, 1)
	go func() { first <- c.ReconsumeLaterNext(context.Background(), msg) }()
	require.Eventually(t, func() bool { return len(b.InProcess.Topics()) > 1 }, 5*time.Second, 10*time.Millisecond)
	time.Sleep(200 * time.Millisecond)
	require.ErrorIs(t, c.ReconsumeLaterNext(context.Background(), msg), redelivery.ErrNotInFlight,
		"the message is being published")
	c.Close()
	require.ErrorIs(t, waittest.Next(t, first), redelivery.ErrClosed)
}
