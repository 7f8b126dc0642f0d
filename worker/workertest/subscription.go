package workertest

import (
	"cmp"
	"context"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/apache/pulsar-client-go/pulsar"

	"github.com/pulsar-redelivery/redelivery"
	"github.com/pulsar-redelivery/redelivery/internal/virtual"
	"github.com/pulsar-redelivery/redelivery/worker"
)

// Subscription is a subscription with its messages and Workers, on a broker in virtual time. Setup.Subscription makes
// one. Handlers may call its methods too, except Settle, Attempts and Calls, which are for the goroutine of the test.
type Subscription struct {
	t        testing.TB
	setup    Setup
	topic    string
	broker   *virtual.Broker
	recorder *recorder

	workers atomic.Int32 // how many were started
}

// Subscription returns a subscription without messages and Workers, for a test inside a bubble of testing/synctest.
// When the test ends, its Workers stop.
func (s Setup) Subscription(t testing.TB) *Subscription {
	t.Helper()
	synctest.Wait() // panics outside of a bubble
	s.Consumer.SubscriptionName = cmp.Or(s.Consumer.SubscriptionName, "subscription")
	if s.Consumer.Topic == "" && len(s.Consumer.Topics) == 0 {
		s.Consumer.Topic = "topic"
	}
	return &Subscription{t: t, setup: s, broker: &virtual.Broker{},
		recorder: &recorder{began: time.Now(), ids: map[string]*message{}, named: map[string]*message{}},
		topic:    append(slices.Clone(s.Consumer.Topics), s.Consumer.Topic)[0]}
}

// Publish publishes messages to the topic, or to the first one of several. They are delivered in this order; on Shared
// and Key_Shared not before DeliverAfter or DeliverAt. Publish may be called before a Worker is started.
func (x *Subscription) Publish(msgs ...*pulsar.ProducerMessage) {
	for _, msg := range msgs {
		x.recorder.publish(msg, func() pulsar.MessageID { return x.broker.Publish(x.topic, msg) })
	}
}

// Worker is a worker.Worker that Start or StartBatch started.
type Worker struct {
	*worker.Worker
	stop func()
}

// Stop ends Run of the Worker, as a deployment does, and closes the Worker's Consumer, so that its messages go to other
// Workers. The test fails if Run returns an error. A second Stop does nothing.
func (w *Worker) Stop() { w.stop() }

// Start subscribes a Consumer and runs a Worker. The options come after those of the Setup. If the subscription has a
// Worker already, another one joins it: on Failover the new one gets nothing until it is active.
func (x *Subscription) Start(handler worker.Handler, options ...worker.Option) *Worker {
	x.t.Helper()
	return x.start(options, func(number int, c *redelivery.Consumer, options []worker.Option) (*worker.Worker, error) {
		record := worker.WithMiddleware(func(next worker.Handler) worker.Handler {
			return func(ctx context.Context, msg pulsar.Message) error {
				return x.recorder.called(number, []pulsar.Message{msg}, func() error { return next(ctx, msg) })
			}
		})
		return worker.New(c, handler, append([]worker.Option{record}, options...)...)
	})
}

// StartBatch is Start for a BatchHandler.
func (x *Subscription) StartBatch(handler worker.BatchHandler, batch worker.Batch, options ...worker.Option) *Worker {
	x.t.Helper()
	return x.start(options, func(number int, c *redelivery.Consumer, options []worker.Option) (*worker.Worker, error) {
		if handler == nil { // NewBatch returns the error
			return worker.NewBatch(c, nil, batch, options...)
		}
		return worker.NewBatch(c, func(ctx context.Context, msgs []pulsar.Message) error {
			return x.recorder.called(number, msgs, func() error { return handler(ctx, msgs) })
		}, batch, options...)
	})
}

func (x *Subscription) start(options []worker.Option,
	create func(number int, c *redelivery.Consumer, options []worker.Option) (*worker.Worker, error)) *Worker {
	x.t.Helper()
	quiet := slog.New(slog.DiscardHandler)
	consumer, err := redelivery.Subscribe(x.broker, x.setup.Consumer, slices.Concat(
		[]redelivery.Option{redelivery.WithLogger(quiet),
			redelivery.WithObserver(redelivery.Observer{Settled: x.recorder.settled})}, x.setup.Redelivery)...)
	if err != nil {
		x.t.Fatalf("workertest: %v", err)
	}
	n := int(x.workers.Add(1)) - 1
	w, err := create(n, consumer, slices.Concat([]worker.Option{worker.WithLogger(quiet)}, x.setup.Worker, options))
	if err != nil {
		consumer.Close()
		x.t.Fatalf("workertest: %v", err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- w.Run(ctx) }()
	stop := sync.OnceFunc(func() {
		cancel()
		if err := <-done; err != nil {
			x.t.Errorf("workertest: %v", err)
		}
		consumer.Close()
	})
	x.t.Cleanup(stop)
	return &Worker{w, stop}
}

// Outage makes all calls of handlers fail with err from now on, without calling the handler, as if a service that all
// handlers need were down. Outage(nil) ends the outage. Calls in an outage are Attempts too. For a partial outage let
// the handler itself fail.
func (x *Subscription) Outage(err error) { x.recorder.fail(err) }

// Elect makes the next Worker of a Failover subscription the active one, in turn. The new active Worker gets all
// messages that are not acknowledged, including those still in handlers of the Worker before it.
func (x *Subscription) Elect() {
	x.t.Helper()
	if n := x.broker.Consumers(); x.setup.Consumer.Type != pulsar.Failover || n < 2 {
		x.t.Fatalf("workertest: Elect is called with %d Workers, want 2 or more, and Type pulsar.Failover", n)
	}
	x.broker.Elect()
}

// Reconnect breaks the connections of all Workers, as the unload of a topic does. The broker sends unacknowledged
// messages again, to any of the Workers.
func (x *Subscription) Reconnect() { x.broker.Reconnect() }

// Settle lets time pass until every message is acknowledged or a dead letter, but no more than within. It fails the
// test if a message is not settled by then. To see messages that are handled again after that, let more time pass
// before Attempts.
func (x *Subscription) Settle(within time.Duration) {
	x.t.Helper()
	if left := x.await(within); len(left) > 0 {
		x.t.Errorf("workertest: %d messages are not settled after %v, the first is %s", len(left), within,
			x.recorder.describe(left[0]))
	}
}

// await waits like Settle, and returns the messages that are not settled in time.
func (x *Subscription) await(within time.Duration) (left []*message) {
	for pause := time.Millisecond; ; pause *= 2 {
		synctest.Wait()
		left = x.recorder.unsettled(x.broker)
		if len(left) == 0 || within <= 0 {
			return left
		}
		time.Sleep(min(pause, within))
		within -= pause
	}
}

// Attempts returns the attempts of each message until now, in the order of Publish.
func (x *Subscription) Attempts() (all []Attempts) {
	synctest.Wait()
	ends := x.recorder.ends(x.broker)
	of, _ := x.recorder.snapshot()
	for _, calls := range of {
		all = append(all, x.recorder.attempts(calls, ends))
	}
	return all
}

// Calls returns the attempts of all messages until now, in the order in which handlers were called.
func (x *Subscription) Calls() Attempts {
	synctest.Wait()
	_, calls := x.recorder.snapshot()
	return x.recorder.attempts(calls, x.recorder.ends(x.broker))
}
