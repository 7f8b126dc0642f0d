package close

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/apache/pulsar-client-go/pulsar"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pulsar-redelivery/redelivery"
	"github.com/pulsar-redelivery/redelivery/internal/logtest"
	"github.com/pulsar-redelivery/redelivery/test/testkit"
)

func TestNackAfterCloseIsRefused(t *testing.T) {
	t.Parallel()
	b := testkit.NewBroker(t)
	topic := b.NewTopic(0)
	c := b.Subscribe(b.Options(topic, pulsar.Shared))
	b.Send(topic, 1, false)
	msg := testkit.Receive(t, c)
	c.Close()
	require.ErrorIs(t, c.NackWithDelay(msg, 0), redelivery.ErrClosed)
	require.ErrorIs(t, c.NackWithReason(msg, nil), redelivery.ErrClosed)
	c.Nack(msg) // has no effect: after Close the broker sends the message again in any case
	c.NackID(msg.ID())
	require.Zero(t, c.Stats().Failed)
}

// busy has the kinds of consumers whose Close has most to wait for.
var busy = map[string]func(*testkit.Broker, *pulsar.ConsumerOptions){
	"acks grouped": func(*testkit.Broker, *pulsar.ConsumerOptions) {},
	"acks at once": func(_ *testkit.Broker, o *pulsar.ConsumerOptions) {
		o.AckGroupingOptions = &pulsar.AckGroupingOptions{MaxSize: 1}
	},
	"with response": func(_ *testkit.Broker, o *pulsar.ConsumerOptions) { o.AckWithResponse = true },
	"partitioned": func(b *testkit.Broker, o *pulsar.ConsumerOptions) {
		o.Topic, o.AckGroupingOptions = b.NewTopic(4), &pulsar.AckGroupingOptions{MaxSize: 1}
	},
	"exclusive": func(_ *testkit.Broker, o *pulsar.ConsumerOptions) { o.Type, o.AckWithResponse = pulsar.Exclusive, true },
	"with a retry topic": func(b *testkit.Broker, o *pulsar.ConsumerOptions) {
		o.RetryEnable, o.DLQ = true, &pulsar.DLQPolicy{MaxDeliveries: 3}
	},
	"zero-queue": func(_ *testkit.Broker, o *pulsar.ConsumerOptions) { o.EnableZeroQueueConsumer = true },
}

const closes = 8 // of each kind; 56 in all

// Upstream can deadlock in Close and in concurrent calls. The test makes its own load, so tests that wait may run at
// the same time.
func TestCloseUnderLoadReturns(t *testing.T) {
	t.Parallel()
	testkit.Each(t, busy, func(t *testing.T, adjust func(*testkit.Broker, *pulsar.ConsumerOptions)) {
		b := testkit.NewBroker(t)
		opts := b.Options(b.NewTopic(0), pulsar.Shared)
		adjust(b, &opts)
		flow(b, opts.Topic)
		for n := range closes {
			resolution := redelivery.WithRedeliveryResolution(time.Duration(1+9*(n%2)) * time.Millisecond)
			c := b.Subscribe(opts, redelivery.WithNackRedeliveryDelay(5*time.Millisecond),
				redelivery.WithAckTimeout(20*time.Millisecond), resolution)
			var workers sync.WaitGroup
			for range 4 {
				workers.Go(func() { work(c) })
			}
			time.Sleep(time.Duration(50+10*n) * time.Millisecond)
			begin := time.Now()
			c.Close()
			assert.Less(t, time.Since(begin), 10*time.Second) // an unanswered request would take 30 s
			finishes(t, &workers, testkit.Patience)
			require.Zero(t, c.Stats().Waiting)
			require.Zero(t, testkit.KnownEntries(c))
		}
	})
}

// flow publishes messages until stop is called.
func flow(b *testkit.Broker, topic string) (stop func()) {
	p, err := b.Client.CreateProducer(pulsar.ProducerOptions{Topic: topic, BatchingMaxMessages: 5})
	require.NoError(b.T, err)
	ctx, cancel := context.WithCancel(context.Background())
	var sending sync.WaitGroup
	sending.Go(func() {
		for i := 0; ctx.Err() == nil; i++ {
			p.SendAsync(context.Background(), &pulsar.ProducerMessage{Payload: []byte(fmt.Sprint(i))}, nil)
			time.Sleep(time.Millisecond)
		}
	})
	stop = sync.OnceFunc(func() {
		cancel()
		sending.Wait()
		p.Close()
	})
	b.T.Cleanup(stop)
	return stop
}

// work receives messages until the consumer is closed. It nacks some, reconsumes some, acknowledges some, and does
// nothing with others.
func work(c *redelivery.Consumer) {
	for i := 0; ; i++ {
		msg, err := c.Receive(context.Background())
		if err != nil {
			return
		}
		switch i % 4 {
		case 0:
			c.Nack(msg)
		case 1:
			_ = c.ReconsumeLaterAfter(context.Background(), msg, 100*time.Millisecond, nil)
		case 2:
			_ = c.Ack(msg)
		}
	}
}

// finishes checks that the calls return in time.
func finishes(t *testing.T, calls *sync.WaitGroup, within time.Duration) {
	t.Helper()
	done := make(chan struct{})
	go func() {
		calls.Wait()
		close(done)
	}()
	select {
	case <-done:
	case <-time.After(within):
		require.FailNow(t, "calls hang")
	}
}

// The methods may return errors.
func TestAllMethodsAtOnceReturn(t *testing.T) {
	t.Parallel()
	for name, adjust := range busy {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := testkit.NewBroker(t)
			// During a seek an ack gets no answer, and delays all other calls for the OperationTimeout.
			client, err := pulsar.NewClient(pulsar.ClientOptions{URL: b.URL, Logger: logtest.Client(t),
				OperationTimeout: 3 * time.Second})
			require.NoError(t, err)
			t.Cleanup(client.Close)
			hasty := *b
			hasty.Client = client
			for n := range 3 {
				opts := b.Options(b.NewTopic(0), pulsar.Shared)
				adjust(b, &opts)
				stop := flow(b, opts.Topic)
				c := testkit.Insist(t, func() (*redelivery.Consumer, error) {
					return hasty.TrySubscribe(opts, redelivery.WithNackRedeliveryDelay(5*time.Millisecond),
						redelivery.WithAckTimeout(20*time.Millisecond))
				})
				var msgs []pulsar.Message
				for range 50 {
					msgs = append(msgs, testkit.Patiently(t, c))
				}
				var calls sync.WaitGroup
				for range 2 {
					calls.Go(func() { work(c) })
					calls.Go(func() {
						for i, msg := range msgs {
							c.Nack(msg)
							_ = c.AckIDList([]pulsar.MessageID{msg.ID(), msgs[(i+1)%len(msgs)].ID()})
							_ = c.AckCumulative(msg)
							_ = c.InProgress(msg)
						}
					})
					calls.Go(func() { _ = c.Seek(msgs[0].ID()) })
					calls.Go(func() { _ = c.SeekByTime(time.Now().Add(-time.Minute)) })
				}
				time.Sleep(time.Duration(30*n) * time.Millisecond)
				calls.Go(c.Close)
				calls.Go(c.Close)
				finishes(t, &calls, time.Minute)
				stop()
			}
		})
	}
}

// A service may report its backlog on a goroutine of its own.
func TestLastMessageIDsDuringCloseReturn(t *testing.T) {
	t.Parallel()
	b := testkit.NewBroker(t)
	topic := b.NewTopic(3)
	for range 20 {
		c := b.Subscribe(b.Options(topic, pulsar.Shared))
		var calls sync.WaitGroup
		for range 20 {
			calls.Go(func() {
				for {
					if _, err := c.GetLastMessageIDs(); err != nil {
						return
					}
				}
			})
		}
		time.Sleep(20 * time.Millisecond)
		c.Close()
		finishes(t, &calls, testkit.Patience)
	}
}

func TestUnsubscribeOfBusyConsumerReturns(t *testing.T) {
	t.Parallel()
	if testkit.InOwnProcess(t) {
		return
	}
	b := testkit.NewBroker(t)
	for n := range 5 {
		opts := b.Options(b.NewTopic(0), pulsar.Shared)
		opts.AckGroupingOptions = &pulsar.AckGroupingOptions{MaxSize: 1}
		flow(b, opts.Topic)
		c := b.Subscribe(opts, redelivery.WithNackRedeliveryDelay(5*time.Millisecond),
			redelivery.WithAckTimeout(20*time.Millisecond),
			redelivery.WithRedeliveryResolution(time.Millisecond))
		var calls sync.WaitGroup
		for range 4 {
			calls.Go(func() { work(c) })
		}
		time.Sleep(time.Duration(50+20*n) * time.Millisecond)
		for range 2 {
			calls.Go(func() { _ = c.Unsubscribe() })
		}
		calls.Go(func() {
			time.Sleep(time.Duration(5*n) * time.Millisecond)
			c.Close()
		})
		finishes(t, &calls, testkit.Patience)
	}
}

// The consumer has given up reconnecting and closed itself. The observer gets the reason for each of its topics, also
// for the last one.
func TestReceiveReturnsWhenConsumerGaveUp(t *testing.T) {
	t.Parallel()
	once := uint(1)
	testkit.Each(t, map[string]func(*testkit.Broker, *pulsar.ConsumerOptions){
		"plain":       func(*testkit.Broker, *pulsar.ConsumerOptions) {},
		"partitioned": func(b *testkit.Broker, o *pulsar.ConsumerOptions) { o.Topic = b.NewTopic(3) },
		"multi-topic": func(b *testkit.Broker, o *pulsar.ConsumerOptions) {
			o.Topics, o.Topic = []string{b.NewTopic(0), b.NewTopic(2)}, ""
		},
		"with a retry topic": func(b *testkit.Broker, o *pulsar.ConsumerOptions) { o.RetryEnable = true },
	}, func(t *testing.T, adjust func(*testkit.Broker, *pulsar.ConsumerOptions)) {
		b := testkit.NewBrokerInProcess(t, pulsar.ClientOptions{OperationTimeout: 3 * time.Second})
		opts := b.Options(b.NewTopic(0), pulsar.Shared)
		opts.MaxReconnectToBroker = &once
		adjust(b, &opts)
		topics := max(1, len(opts.Topics))
		if opts.RetryEnable {
			topics++
		}
		failures := make(chan redelivery.Failed, topics+1)
		c := b.Subscribe(opts, redelivery.WithObserver(redelivery.Observer{Failed: func(e redelivery.Failed) { failures <- e }}))
		received := make(chan error, 2)
		for range 2 {
			go func() { _, err := c.Receive(context.Background()); received <- err }()
		}
		b.InProcess.RefuseConnections(true)
		b.InProcess.DropConnections()
		for range 2 {
			select {
			case err := <-received:
				require.Error(t, err)
			case <-time.After(testkit.Patience):
				require.FailNow(t, "Receive hangs")
			}
		}
		for range topics {
			select {
			case e := <-failures:
				require.Equal(t, "receive", e.Operation)
				require.ErrorContains(t, e.Err, "persistent://public/default/t-") // names the topic
			case <-time.After(testkit.Patience):
				require.FailNow(t, "the reason is not reported")
			}
		}
		begin := time.Now()
		c.Close()
		require.Less(t, time.Since(begin), 2*time.Second)
	})
}

// Upstream unsubscribes from several topics one after the other, and waits for ever if the consumer of one is closed.
func TestCloseDuringUnsubscribeReturns(t *testing.T) {
	t.Parallel()
	if testkit.InOwnProcess(t) {
		return
	}
	for range 4 {
		b := testkit.NewBrokerInProcess(t, pulsar.ClientOptions{OperationTimeout: 3 * time.Second})
		opts := b.Options("", pulsar.Shared)
		opts.Topics = []string{b.NewTopic(0), b.NewTopic(0), b.NewTopic(0)}
		c := b.Subscribe(opts)
		b.InProcess.RefuseConnections(true)
		b.InProcess.DropConnections()
		time.Sleep(300 * time.Millisecond)
		unsubscribed := make(chan error, 1)
		go func() { unsubscribed <- c.Unsubscribe() }()
		time.Sleep(300 * time.Millisecond)
		var closing sync.WaitGroup
		closing.Go(c.Close)
		time.Sleep(500 * time.Millisecond)
		b.InProcess.RefuseConnections(false)
		finishes(t, &closing, 2*testkit.Patience)
		select {
		case <-unsubscribed:
		case <-time.After(testkit.Patience):
			require.FailNow(t, "Unsubscribe hangs")
		}
	}
}

func TestCloseOfWaitingZeroQueueConsumerReturns(t *testing.T) {
	t.Parallel()
	b := testkit.NewBroker(t)
	opts := b.Options(b.NewTopic(0), pulsar.Shared)
	opts.EnableZeroQueueConsumer = true
	for range 20 {
		c := b.Subscribe(opts)
		var calls sync.WaitGroup
		for range 4 {
			calls.Go(func() { _, err := c.Receive(context.Background()); assert.Error(t, err) })
		}
		time.Sleep(10 * time.Millisecond)
		calls.Go(c.Close)
		finishes(t, &calls, testkit.Patience)
		calls.Go(func() { _, err := c.Receive(context.Background()); assert.Error(t, err) })
		finishes(t, &calls, testkit.Patience)
	}
	once := uint(1)
	opts.MaxReconnectToBroker = &once
	_, err := redelivery.Subscribe(b.Client, opts)
	require.ErrorIs(t, err, redelivery.ErrInvalidOption)
	require.ErrorContains(t, err, "want nil with EnableZeroQueueConsumer")
}

// closer closes the consumer in every callback except BeforeConsume.
type closer struct{ calls atomic.Int32 }

func (x *closer) close(c pulsar.Consumer) {
	x.calls.Add(1)
	c.Close()
}
func (x *closer) BeforeConsume(pulsar.ConsumerMessage)                       {}
func (x *closer) OnAcknowledge(c pulsar.Consumer, _ pulsar.MessageID)        { x.close(c) }
func (x *closer) OnNegativeAcksSend(c pulsar.Consumer, _ []pulsar.MessageID) { x.close(c) }
func (x *closer) OnConsumerClose(c pulsar.Consumer, _ error)                 { x.close(c) }

func TestCloseInInterceptorsOfPartitionsReturns(t *testing.T) {
	t.Parallel()
	for name, act := range map[string]func(*redelivery.Consumer, pulsar.Message){
		"close": func(*redelivery.Consumer, pulsar.Message) {},
		"ack":   func(c *redelivery.Consumer, msg pulsar.Message) { _ = c.Ack(msg) },
		"nack":  func(c *redelivery.Consumer, msg pulsar.Message) { c.NackID(msg.ID()) },
	} {
		testkit.Each(t, testkit.SubscriptionTypes, func(t *testing.T, kind pulsar.SubscriptionType) {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				b := testkit.NewBroker(t)
				topic := b.NewTopic(3)
				x := &closer{}
				opts := b.Options(topic, kind)
				opts.Interceptors = pulsar.ConsumerInterceptors{x}
				c := b.Subscribe(opts, redelivery.WithNackRedeliveryDelay(0))
				b.Send(topic, 3, false)
				act(c, testkit.Receive(t, c))
				testkit.Returns(t, func() error { c.Close(); return nil })
				testkit.Returns(t, func() error { c.Close(); return nil })
				require.NotZero(t, x.calls.Load())
			})
		})
	}
}

// Prefetched messages are not delivered, since they could not be acknowledged.
func TestCloseOfClientEndsTheConsumer(t *testing.T) {
	t.Parallel()
	for name, topics := range map[string]int{"one topic": 1, "two topics": 2} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := testkit.NewBroker(t)
			client, err := pulsar.NewClient(pulsar.ClientOptions{URL: b.URL, Logger: logtest.Client(t)})
			require.NoError(t, err)
			defer client.Close()
			opts := b.Options("", pulsar.Shared)
			for range topics {
				opts.Topics = append(opts.Topics, b.NewTopic(0))
			}
			c, err := redelivery.Subscribe(client, opts)
			require.NoError(t, err)
			defer c.Close()
			for _, topic := range opts.Topics {
				b.Send(topic, 50, false)
			}
			msg := testkit.Receive(t, c)
			client.Close()
			select {
			case <-c.Done():
			case <-time.After(5 * time.Second):
				require.Fail(t, "Done is not closed")
			}
			_, err = c.Receive(t.Context())
			require.ErrorContains(t, err, "ConsumerClosed", "the error is not upstream's")
			require.Error(t, c.Ack(msg))
			_, err = c.Delivery(msg)
			require.ErrorIs(t, err, redelivery.ErrClosed)
		})
	}
}

// Upstream never answers an acknowledgement that comes while it closes the consumer. The acknowledgements run in
// goroutines that upstream does not end.
func TestAckWithResponseReturnsWhenTheClientIsClosed(t *testing.T) {
	t.Parallel()
	if testkit.InOwnProcess(t) {
		return
	}
	for name, ack := range map[string]func(*redelivery.Consumer, pulsar.Message) error{
		"Ack": (*redelivery.Consumer).Ack,
		"AckIDList": func(c *redelivery.Consumer, msg pulsar.Message) error {
			return c.AckIDList([]pulsar.MessageID{msg.ID()})
		},
	} {
		t.Run(name, func(t *testing.T) {
			for n := range 10 {
				b := testkit.NewBroker(t)
				client, err := pulsar.NewClient(pulsar.ClientOptions{URL: b.URL, Logger: logtest.Client(t)})
				require.NoError(t, err)
				opts := b.Options(b.NewTopic(0), pulsar.Shared)
				opts.AckWithResponse = true
				c, err := redelivery.Subscribe(client, opts)
				require.NoError(t, err)
				b.Send(opts.Topic, 1000, false)
				var calls sync.WaitGroup
				for range 100 {
					calls.Go(func() {
						for {
							msg, err := c.Receive(context.Background())
							if err != nil || ack(c, msg) != nil {
								return
							}
						}
					})
				}
				time.Sleep(time.Duration(3*n) * time.Millisecond)
				client.Close()
				finishes(t, &calls, testkit.Patience)
				c.Close()
			}
		})
	}
}

// The tests below are for differences from client.Subscribe that upstream's own tests found; see test/upstream.

func TestAckIDListAfterCloseReportsEachMessage(t *testing.T) {
	c, inner := testkit.SubscribeFake(t, pulsar.Shared)
	inner.Deliver(1)
	inner.Deliver(2)
	ids := []pulsar.MessageID{testkit.Receive(t, c).ID(), testkit.Receive(t, c).ID()}
	c.Close()
	require.IsType(t, pulsar.AckError{}, c.AckIDList(ids))
	var failed pulsar.AckError
	require.ErrorAs(t, c.AckIDList(ids), &failed)
	require.Len(t, failed, len(ids))
	for _, id := range ids {
		require.ErrorIs(t, failed[id], redelivery.ErrClosed)
		require.EqualError(t, failed[id], "consumer state is closed")
	}
	require.ErrorIs(t, c.AckIDList(nil), redelivery.ErrClosed)
}

func TestUnsubscribeOfReceivingZeroQueueConsumerReturns(t *testing.T) {
	if testkit.InOwnProcess(t) {
		return
	}
	b := testkit.NewBroker(t)
	opts := b.Options(b.NewTopic(0), pulsar.Shared)
	opts.EnableZeroQueueConsumer = true
	c := b.Subscribe(opts)
	go func() { _, _ = c.Receive(t.Context()) }()
	time.Sleep(100 * time.Millisecond)
	done := make(chan error, 1)
	go func() { done <- c.Unsubscribe() }()
	select {
	case err := <-done:
		require.NoError(t, err)
	case <-time.After(5 * time.Second):
		t.Error("Unsubscribe hangs")
	}
}
