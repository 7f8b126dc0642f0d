package owners

import (
	"context"
	"fmt"
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"github.com/apache/pulsar-client-go/pulsar"
	"github.com/stretchr/testify/require"

	"github.com/pulsar-redelivery/redelivery"
	"github.com/pulsar-redelivery/redelivery/test/testkit"
)

// publishSlowly publishes the payloads "0", "1" and so on until the test ends.
func publishSlowly(b *testkit.Broker, topic string) {
	p, err := b.Client.CreateProducer(pulsar.ProducerOptions{Topic: topic, DisableBatching: true})
	require.NoError(b.T, err)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		for n := 0; ctx.Err() == nil; n++ {
			_, _ = p.Send(ctx, &pulsar.ProducerMessage{Payload: []byte(strconv.Itoa(n))})
			time.Sleep(5 * time.Millisecond)
		}
	}()
	b.T.Cleanup(func() {
		cancel()
		<-done
		p.Close()
	})
}

// number returns the payload of a message as a number.
func number(msg pulsar.Message) (n int) {
	_, _ = fmt.Sscan(string(msg.Payload()), &n)
	return n
}

// receives makes the inner consumer receive entry n: it calls BeforeConsume and passes the message to the Consumer.
func receives(f *testkit.Fake, opts pulsar.ConsumerOptions, n int64) {
	cm := pulsar.ConsumerMessage{Consumer: f, Message: testkit.Message{MessageID: pulsar.NewMessageID(1, n, 0, 0)}}
	opts.Interceptors.BeforeConsume(cm)
	f.Queue <- cm
}

// A Failover consumer joins, and the broker reports that it is inactive before Subscribe has returned. When the active
// consumer leaves, the broker first sends new messages to the second one. After the failover delay it reports the
// change, and sends all unacknowledged messages. The application must get the oldest message first.
func TestFailoverTakeoverBeginsWithTheOldest(t *testing.T) {
	t.Parallel()
	b := testkit.NewBroker(t)
	topic := b.NewTopic(1) // the consumer with the first name is active on a partition
	join := func(name string) (pulsar.Consumer, func() int) {
		opts := b.Options(topic, pulsar.Failover)
		opts.Name = name
		c := b.Subscribe(opts)
		return c, func() int { return number(testkit.Receive(t, c)) }
	}
	a, next := join("a")
	publishSlowly(b, topic)
	for n := range 50 {
		require.Equal(t, n, next())
	}
	_, next = join("b")
	a.Close()
	for n := range 300 {
		require.Equal(t, n, next())
	}
}

// The Consumer delivers nothing until the broker reports that it is active.
func TestInactiveNoticeDuringSubscribeIsKept(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		inner := testkit.NewFake()
		var opts pulsar.ConsumerOptions
		c, err := redelivery.SubscribeWith(func(o pulsar.ConsumerOptions) (pulsar.Consumer, error) {
			inner.Prefetch(t, o.MessageChannel)
			opts = o
			o.EventListener.BecameInactive(inner, "", -1)
			o.EventListener.BecameInactive(inner, "other", -1)
			o.EventListener.BecameActive(inner, "other", -1)
			return inner, nil
		}, pulsar.ConsumerOptions{Type: pulsar.Failover})
		require.NoError(t, err)
		defer c.Close()
		inner.Deliver(7)
		testkit.ReceiveNothing(t, c, time.Second)
		opts.EventListener.BecameActive(inner, "", -1)
		receives(inner, opts, 1)
		require.Equal(t, int64(1), testkit.Receive(t, c).ID().EntryID())
	})
}

// comesInOrder lets the broker send fifteen messages, and checks that the application gets all of them, oldest first.
func comesInOrder(t *testing.T, c *redelivery.Consumer, inner *testkit.Fake, opts pulsar.ConsumerOptions) {
	t.Helper()
	for n := range int64(15) {
		receives(inner, opts, n)
	}
	for n := range int64(15) {
		msg := testkit.Receive(t, c)
		require.Equal(t, n, msg.ID().EntryID())
		require.NoError(t, c.Ack(msg))
	}
}

// The Consumer drops messages that come before the partition becomes its own, since the broker sends them again after
// older messages.
func TestMessageReceivedBeforeActivationComesAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		inner := testkit.NewFake()
		c, opts := testkit.SubscribeFakeWith(t, inner, pulsar.ConsumerOptions{Type: pulsar.Failover})
		for n := range int64(5) {
			receives(inner, opts, 10+n)
		}
		opts.EventListener.BecameInactive(inner, "", -1)
		opts.EventListener.BecameActive(inner, "", -1)
		comesInOrder(t, c, inner, opts)
		require.Equal(t, uint64(5), c.Stats().Dropped)
		time.Sleep(time.Minute)
		require.Empty(t, inner.Requests())
	})
}

// The active consumer has left. The broker sends a new message to this one before it reports the change, and then sends
// all unacknowledged messages. The application waits all the time.
func TestMessageSentBeforeTheReportOfActivationComesAfterOlderOnes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		inner := testkit.NewFake()
		c, opts := testkit.SubscribeFakeWith(t, inner, pulsar.ConsumerOptions{Type: pulsar.Failover})
		opts.EventListener.BecameInactive(inner, "", -1)
		receives(inner, opts, 10)
		testkit.ReceiveNothing(t, c, time.Second)
		opts.EventListener.BecameActive(inner, "", -1)
		comesInOrder(t, c, inner, opts)
		require.Empty(t, inner.Requests())
	})
}

// Another partition becomes inactive while Chan offers a message and a nacked message is due. The application
// acknowledges cumulatively, and must still get the offered message.
func TestInactivePartitionSparesOtherOffers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		inner := testkit.NewFake()
		c, opts := testkit.SubscribeFakeWith(t, inner, pulsar.ConsumerOptions{Type: pulsar.Failover},
			redelivery.WithNackRedeliveryDelay(time.Second))
		ch := c.Chan()
		send := func(n int64) {
			inner.Queue <- pulsar.ConsumerMessage{Consumer: inner,
				Message: testkit.Message{MessageID: pulsar.NewMessageID(1, n, 0, 0), TopicName: "p0"}}
		}
		send(1)
		cm := <-ch
		c.Nack(cm)
		for n := int64(2); n < 6; n++ {
			send(n)
		}
		synctest.Wait()
		time.Sleep(2 * time.Second) // the time of a slow handler, after which message 1 is due and message 2 is offered
		synctest.Wait()
		opts.EventListener.BecameInactive(inner, "p1", 1)
		synctest.Wait()
		var got []int64
		for range 4 {
			select {
			case cm := <-ch:
				got = append(got, cm.ID().EntryID())
				require.NoError(t, c.AckCumulative(cm))
				synctest.Wait()
			case <-time.After(time.Minute):
			}
		}
		require.Contains(t, got, int64(2), "message 2 was acknowledged cumulatively, but never delivered")
	})
}

// If a partition or key changes its owner before an acknowledgement reaches the broker, the message is handled twice.
// So on Failover and Key_Shared the Consumer sends acknowledgements sooner than pulsar-client-go would.
func TestAcksAreSentSoonWhereOwnersChange(t *testing.T) {
	t.Parallel()
	b := testkit.NewBroker(t)
	own := &pulsar.AckGroupingOptions{MaxSize: 7, MaxTime: time.Minute}
	subscribed := func(opts pulsar.ConsumerOptions, options ...redelivery.Option) (got *pulsar.AckGroupingOptions) {
		c, err := redelivery.SubscribeWith(func(o pulsar.ConsumerOptions) (pulsar.Consumer, error) {
			got = o.AckGroupingOptions
			return b.Client.Subscribe(o)
		}, opts, options...)
		require.NoError(t, err)
		c.Close()
		return got
	}
	grouping := func(kind pulsar.SubscriptionType, partitions int, given *pulsar.AckGroupingOptions) *pulsar.AckGroupingOptions {
		opts := b.Options(b.NewTopic(partitions), kind)
		opts.AckGroupingOptions = given
		return subscribed(opts, redelivery.WithClient(b.Client))
	}
	for name, kind := range testkit.SubscriptionTypes {
		require.Same(t, own, grouping(kind, 0, own), name)
		if kind == pulsar.Exclusive || kind == pulsar.Shared {
			require.Nil(t, grouping(kind, 0, nil), name)
			continue
		}
		require.Equal(t, &pulsar.AckGroupingOptions{MaxSize: 1000, MaxTime: 10 * time.Millisecond},
			grouping(kind, 0, nil), name)
		require.Equal(t, &pulsar.AckGroupingOptions{MaxSize: 1000, MaxTime: 20 * time.Millisecond},
			grouping(kind, 40, nil), name)
	}

	opts := b.Options("", pulsar.Failover)
	opts.Topics = []string{b.NewTopic(30), b.NewTopic(30)}
	require.Equal(t, 30*time.Millisecond,
		subscribed(opts, redelivery.WithClient(b.Client), redelivery.WithRedeliveryResolution(time.Second)).MaxTime)
	require.Nil(t, subscribed(b.Options(b.NewTopic(0), pulsar.Failover)),
		"without a client, the number of partitions is unknown")
	opts = b.Options("", pulsar.Failover)
	opts.TopicsPattern = b.NewTopic(0) + ".*"
	require.Nil(t, subscribed(opts, redelivery.WithClient(b.Client)), "with a pattern, the number of topics is unknown")
}
