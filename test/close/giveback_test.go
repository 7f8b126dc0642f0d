package close

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/apache/pulsar-client-go/pulsar"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pulsar-redelivery/redelivery"
	"github.com/pulsar-redelivery/redelivery/internal/logtest"
	"github.com/pulsar-redelivery/redelivery/internal/waittest"
	"github.com/pulsar-redelivery/redelivery/pulsartest"
	"github.com/pulsar-redelivery/redelivery/test/testkit"
)

// GiveBack waits until the messages of published dead letters and retries are acknowledged.
func TestGiveBackWaitsForDeadLetters(t *testing.T) {
	t.Parallel()
	t.Run("dead letter", func(t *testing.T) {
		t.Parallel()
		b := testkit.NewBroker(t)
		topic, c := givesBackWhilePublishing(b, func(topic string) *redelivery.Consumer {
			b.SubscribeDeadLetters(topic).Close() // so that the broker keeps the letter
			return b.Subscribe(b.Options(topic, pulsar.Shared), redelivery.WithNackRedeliveryDelay(time.Second),
				redelivery.WithDeadLetterPolicy(redelivery.DeadLetterPolicy{MaxDeliveries: 1}))
		})
		dead := b.SubscribeDeadLetters(topic)
		require.NoError(t, dead.Ack(testkit.Next(t, dead, testkit.Patience)))
		testkit.ReceiveNothing(t, c, 2*time.Second)
		b.Settles(topic, 0)
		b.Settles(testkit.DeadLetterTopic(topic), 0) // there is exactly one letter
	})
	t.Run("retry topic", func(t *testing.T) {
		t.Parallel()
		b := testkit.NewBroker(t)
		_, c := givesBackWhilePublishing(b, func(topic string) *redelivery.Consumer {
			return b.Subscribe(b.RetryOptions(topic, 9), redelivery.WithNackRedeliveryDelay(2*time.Second),
				redelivery.WithNackRetryTopic(time.Second))
		})
		require.NoError(t, c.Ack(testkit.Receive(t, c)))
		testkit.ReceiveNothing(t, c, 2*time.Second)
	})
}

// givesBackWhilePublishing calls GiveBack while a Consumer publishes a nacked message. If GiveBack takes so long that
// it may not have waited for the publication, the function repeats that on another topic.
func givesBackWhilePublishing(
	b *testkit.Broker, subscribe func(topic string) *redelivery.Consumer,
) (string, *redelivery.Consumer) {
	for range 10 {
		topic := b.NewTopic(0)
		c := subscribe(topic)
		b.Send(topic, 1, false)
		msg := testkit.Receive(b.T, c)
		begun := time.Now()
		c.Nack(msg)
		require.NoError(b.T, c.GiveBack())
		if time.Since(begun) < 400*time.Millisecond { // GiveBack waits for 500 ms at most
			return topic, c
		}
		c.Close()
	}
	require.FailNow(b.T, "the message was never published while GiveBack waited for it")
	return "", nil
}

// GiveBack must not create the deleted subscription again.
func TestGiveBackAfterUnsubscribeIsRefused(t *testing.T) {
	t.Parallel()
	testkit.Each(t, map[string]func(*redelivery.Consumer) error{
		"Unsubscribe": (*redelivery.Consumer).Unsubscribe, "UnsubscribeForce": (*redelivery.Consumer).UnsubscribeForce,
	}, func(t *testing.T, unsubscribe func(*redelivery.Consumer) error) {
		if testkit.InOwnProcess(t) {
			return
		}
		b := testkit.NewBroker(t)
		topic := b.NewTopic(0)
		c := b.Subscribe(b.Options(topic, pulsar.Shared))
		b.Send(topic, 1, false)
		testkit.Receive(t, c)
		require.NoError(t, unsubscribe(c))
		require.ErrorIs(t, c.GiveBack(), errors.ErrUnsupported)
		_, err := testkit.ReceiveWithin(c, time.Second)
		require.Error(t, err)
		var all struct{ Subscriptions map[string]any }
		b.Admin("GET", topic, "/stats", nil, &all)
		require.Empty(t, all.Subscriptions)
	})
}

// Messages in the buffer of the application's own channel go back too.
func TestGiveBackEmptiesTheMessageChannel(t *testing.T) {
	t.Parallel()
	b := testkit.NewBroker(t)
	topic := b.NewTopic(0)
	opts, channel := b.Options(topic, pulsar.Shared), make(chan pulsar.ConsumerMessage, 10)
	opts.MessageChannel = channel
	c := b.Subscribe(opts)
	b.Send(topic, 1, false)
	holds := func() bool { return len(channel) == 1 }
	require.Eventually(t, holds, testkit.Patience, time.Millisecond)
	require.NoError(t, c.GiveBack())
	require.Eventually(t, holds, testkit.Patience, time.Millisecond)
	require.NoError(t, c.Ack(waittest.Next(t, channel)))
	time.Sleep(time.Second)
	require.Empty(t, channel)
	b.Settles(topic, 0)
}

// An observer may call GiveBack as soon as it gets the Consumer.
func TestGiveBackInObserverReturns(t *testing.T) {
	t.Parallel()
	b := testkit.NewBroker(t)
	topic := b.NewTopic(0)
	b.Send(topic, 20, false)
	b.Subscribe(b.Options(topic, pulsar.Shared),
		redelivery.WithObserver(redelivery.Observer{Subscribed: func(c *redelivery.Consumer) {
			assert.NoError(t, c.GiveBack())
		}})).Close()
	opts := b.Options(topic, pulsar.Shared)
	channel := make(chan pulsar.ConsumerMessage, 3)
	opts.MessageChannel = channel
	var once sync.Once
	b.Subscribe(opts, redelivery.WithObserver(redelivery.Observer{Delivered: func(d redelivery.Delivered) {
		once.Do(func() { assert.NoError(t, d.Consumer.GiveBack()) })
	}}))
	require.Eventually(t, func() bool { return len(channel) == 3 }, testkit.Patience, time.Millisecond)
}

// The log has one line for several topics, without the stack of upstream's error.
func TestGiveBackLogsWhySubscribingFails(t *testing.T) {
	t.Parallel()
	b := testkit.NewBrokerInProcess(t, pulsar.ClientOptions{})
	var log logtest.Buffer
	var failures []error
	opts := b.Options("", pulsar.Shared)
	opts.Topics = []string{b.NewTopic(0), b.NewTopic(0)}
	c := b.Subscribe(opts, testkit.LogTo(&log),
		redelivery.WithObserver(redelivery.Observer{Failed: func(f redelivery.Failed) { failures = append(failures, f.Err) }}))
	require.NoError(t, c.GiveBack())
	b.InProcess.SetHook(func(cmd pulsartest.Command) pulsartest.Verdict {
		if cmd.Type == "SUBSCRIBE" {
			return pulsartest.Fail("AuthorizationError", "not allowed")
		}
		return pulsartest.Pass
	})
	for i := 0; i < 100 && !strings.Contains(log.String(), "subscribing again failed"); i++ {
		testkit.ReceiveNothing(t, c, 200*time.Millisecond)
	}
	c.Close()
	require.Contains(t, log.String(), "subscribing again failed")
	require.Contains(t, log.String(), "AuthorizationError")
	require.NotContains(t, log.String(), ".go:")
	require.NotEmpty(t, failures)
	require.NotContains(t, fmt.Sprintf("%+v", failures[0]), ".go:")
}

// While subscribing again fails, Receive pauses for up to 30 seconds between two attempts. Calls that want the Consumer
// meanwhile do not wait for that.
func TestGiveBackWhileSubscribingAgainFailsReturnsAtOnce(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		attempts := 0
		c, err := redelivery.SubscribeWith(func(o pulsar.ConsumerOptions) (pulsar.Consumer, error) {
			if attempts++; attempts > 1 {
				return nil, errors.New("not allowed")
			}
			inner := testkit.NewFake()
			inner.Prefetch(t, o.MessageChannel)
			return inner, nil
		}, pulsar.ConsumerOptions{Topic: "a", SubscriptionName: "s", Type: pulsar.Shared})
		require.NoError(t, err)
		defer c.Close()
		require.NoError(t, c.GiveBack())
		ctx, cancel := context.WithCancel(context.Background())
		defer cancel()
		go func() { _, _ = c.Receive(ctx) }()
		time.Sleep(5 * time.Minute)
		synctest.Wait()
		tried := attempts
		require.Less(t, tried, 30)
		began := time.Now()
		require.NoError(t, c.GiveBack())
		require.Zero(t, time.Since(began))
		synctest.Wait()
		require.LessOrEqual(t, attempts, tried+1)
	})
}

// The pause between two attempts does not depend on how long an application waits in Receive.
func TestPollingReceiveDoesNotSubscribeAgainMoreOften(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		attempts := 0
		c, err := redelivery.SubscribeWith(func(o pulsar.ConsumerOptions) (pulsar.Consumer, error) {
			if attempts++; attempts > 1 {
				return nil, errors.New("not allowed")
			}
			inner := testkit.NewFake()
			inner.Prefetch(t, o.MessageChannel)
			return inner, nil
		}, pulsar.ConsumerOptions{Topic: "a", SubscriptionName: "s", Type: pulsar.Shared})
		require.NoError(t, err)
		defer c.Close()
		require.NoError(t, c.GiveBack())
		for begin := time.Now(); time.Since(begin) < 5*time.Minute; {
			ctx, cancel := context.WithTimeout(context.Background(), 100*time.Millisecond)
			_, err := c.Receive(ctx)
			cancel()
			require.ErrorIs(t, err, context.DeadlineExceeded)
		}
		require.Less(t, attempts, 30)
	})
}

// The new inner consumer gets no answer to the request.
func TestMessageRequestedBeforeGiveBackIsNotLate(t *testing.T) {
	t.Parallel()
	b := testkit.NewBroker(t)
	topic := b.NewTopic(0)
	c := b.Subscribe(b.Options(topic, pulsar.Shared), redelivery.WithAckTimeout(200*time.Millisecond))
	b.Send(topic, 1, false)
	testkit.Receive(t, c)
	time.Sleep(400 * time.Millisecond) // the message is requested while no goroutine receives
	require.NoError(t, c.GiveBack())
	testkit.Receive(t, c)
	begin := time.Now()
	msg := testkit.Receive(t, c)
	require.Less(t, time.Since(begin), 4*time.Second)
	require.NoError(t, c.Ack(msg))
}

// After GiveBack the Consumer reads all topics again, also one that had given up.
func TestConsumerReadsOtherTopicsWhenOneGivesUpAfterGiveBack(t *testing.T) {
	t.Parallel()
	var prepared pulsar.ConsumerOptions
	c, err := redelivery.SubscribeWith(func(o pulsar.ConsumerOptions) (pulsar.Consumer, error) {
		prepared = o
		inner := testkit.NewFake()
		inner.Prefetch(t, o.MessageChannel)
		return inner, nil
	}, pulsar.ConsumerOptions{Topics: []string{"a", "b"}, SubscriptionName: "s", Type: pulsar.Shared})
	require.NoError(t, err)
	defer c.Close()
	givesUp := func() { prepared.Interceptors.OnConsumerClose(testkit.NewFake(), errors.New("gave up")) }
	givesUp()
	require.NoError(t, c.GiveBack())
	testkit.ReceiveNothing(t, c, 100*time.Millisecond)
	givesUp()
	select {
	case <-c.Done():
		t.Fatal("the Consumer has ended, although one topic is open")
	case <-time.After(100 * time.Millisecond):
	}
	givesUp()
	<-c.Done()
}

// After GiveBack no inner consumer exists that would notice that the client is closed. The client itself does not
// refuse to subscribe again.
func TestCloseOfClientAfterGiveBackEndsTheConsumer(t *testing.T) {
	t.Parallel()
	closeClient := func(_ *testkit.Broker, _ *redelivery.Consumer, client pulsar.Client) { client.Close() }
	for name, ends := range map[string]func(*testkit.Broker, *redelivery.Consumer, pulsar.Client){
		"before the next Receive": closeClient,
		"after it has subscribed": func(_ *testkit.Broker, c *redelivery.Consumer, client pulsar.Client) {
			testkit.ReceiveNothing(t, c, 500*time.Millisecond)
			client.Close()
		},
		"while it subscribes": func(b *testkit.Broker, c *redelivery.Consumer, client pulsar.Client) {
			subscribing := make(chan struct{}, 1)
			b.InProcess.SetHook(func(cmd pulsartest.Command) pulsartest.Verdict {
				if cmd.Type != "SUBSCRIBE" {
					return pulsartest.Pass
				}
				select {
				case subscribing <- struct{}{}:
				default:
				}
				return pulsartest.Pass.After(300 * time.Millisecond)
			})
			testkit.ReceiveNothing(t, c, 50*time.Millisecond)
			<-subscribing
			client.Close()
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := testkit.NewBrokerInProcess(t, pulsar.ClientOptions{})
			for _, topics := range []int{1, 2} {
				client, err := pulsar.NewClient(pulsar.ClientOptions{URL: b.URL, Logger: logtest.Client(t)})
				require.NoError(t, err)
				opts := b.Options("", pulsar.Shared)
				for range topics {
					opts.Topics = append(opts.Topics, b.NewTopic(0))
				}
				var attempts sync.RWMutex // held for reading while an attempt to subscribe is under way
				subscribe := func(o pulsar.ConsumerOptions) (pulsar.Consumer, error) {
					attempts.RLock()
					defer attempts.RUnlock()
					return client.Subscribe(o)
				}
				c, err := redelivery.SubscribeWith(subscribe, opts)
				require.NoError(t, err)
				defer func() {
					attempts.Lock()
					attempts.Unlock() //nolint:staticcheck // only waits for the attempts
				}()
				defer c.Close()
				require.NoError(t, c.GiveBack())
				ends(b, c, client)
				_, err = testkit.ReceiveWithin(c, 5*time.Second)
				require.ErrorContains(t, err, "ConsumerClosed", "the Consumer of %d topics goes on", topics)
				<-c.Done()
			}
		})
	}
}
