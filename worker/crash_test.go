package worker_test

import (
	"context"
	"fmt"
	"log"
	"log/slog"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/apache/pulsar-client-go/pulsar"
	plog "github.com/apache/pulsar-client-go/pulsar/log"
	"github.com/stretchr/testify/require"
	"golang.org/x/time/rate"

	"github.com/pulsar-redelivery/redelivery"
	"github.com/pulsar-redelivery/redelivery/attempts"
	"github.com/pulsar-redelivery/redelivery/backoff"
	"github.com/pulsar-redelivery/redelivery/internal/logtest"
	"github.com/pulsar-redelivery/redelivery/internal/waittest"
	"github.com/pulsar-redelivery/redelivery/pulsartest"
	"github.com/pulsar-redelivery/redelivery/worker"
)

// A message at the limit becomes a dead letter. The other messages of its batch are handled, and the classifier does not
// get the message's error.
func TestMessageAtTheCrashLimitIsNotHandled(t *testing.T) {
	t.Parallel()
	for _, limit := range []int{1, 2} {
		for _, batched := range []bool{false, true} {
			t.Run(fmt.Sprintf("limit %d, batches %t", limit, batched), func(t *testing.T) {
				t.Parallel()
				broker := pulsartest.NewServer(t)
				client := broker.Client(t)
				log := redelivery.WithAttemptLog(redelivery.AttemptLog{})
				opts := pulsar.ConsumerOptions{Topic: "orders", SubscriptionName: "billing", Type: pulsar.Shared, DLQ: &pulsar.DLQPolicy{MaxDeliveries: 3},
					SubscriptionInitialPosition: pulsar.SubscriptionPositionEarliest}
				ids := broker.Publish(t, "orders", &pulsar.ProducerMessage{Payload: []byte("tea")}, &pulsar.ProducerMessage{Payload: []byte("poison")},
					&pulsar.ProducerMessage{Payload: []byte("coffee")})
				crashWith(t, broker, attempts.Key{Topic: "persistent://public/default/orders", Ledger: ids[1].Ledger, Entry: ids[1].Entry})
				c, err := redelivery.Subscribe(client, opts, log, redelivery.WithLogger(logtest.Logger(t)))
				require.NoError(t, err)
				defer c.Close()
				var mu sync.Mutex
				handled := map[string]int{}
				all := func(_ context.Context, msgs []pulsar.Message) error {
					mu.Lock()
					defer mu.Unlock()
					for _, msg := range msgs {
						handled[string(msg.Payload())]++
					}
					return nil
				}
				options := []worker.Option{worker.WithCrashLimit(limit), worker.WithClassifier(func(error) error { return nil })}
				w, err := worker.New(c, func(ctx context.Context, msg pulsar.Message) error { return all(ctx, []pulsar.Message{msg}) }, options...)
				if batched {
					w, err = worker.NewBatch(c, all, worker.Batch{}, options...)
				}
				require.NoError(t, err)
				ctx, stop := context.WithCancel(t.Context())
				ended := make(chan error, 1)
				go func() { ended <- w.Run(ctx) }()
				require.Eventually(t, func() bool {
					mu.Lock()
					defer mu.Unlock()
					return len(handled)+int(w.Stats().Crashed) == 3
				}, 30*time.Second, 10*time.Millisecond)
				broker.Await(t, "orders", "billing", 10*time.Second, func(s pulsartest.Subscription) bool { return s.Backlog == 0 })
				want, dead := map[string]int{"tea": 1, "coffee": 1}, 1
				if limit == 2 {
					want["poison"], dead = 1, 0
				}
				require.Equal(t, want, handled)
				letters := broker.Messages("orders-billing-DLQ")
				require.Len(t, letters, dead)
				require.Eventually(t, func() bool { return c.AttemptLog().Stats().Records == 0 }, 15*time.Second, 10*time.Millisecond)
				stop()
				require.NoError(t, waittest.Next(t, ended))
			})
		}
	}
}

// Since the message cannot become a dead letter, it is nacked each time it comes.
func TestMessageAtTheCrashLimitIsNotHandledWithoutADeadLetterTopic(t *testing.T) {
	t.Parallel()
	c, _, _ := afterACrash(t, 1, redelivery.WithNackRedeliveryDelay(10*time.Millisecond))
	handled := make(chan struct{}, 1000)
	w, err := worker.New(c, func(context.Context, pulsar.Message) error {
		handled <- struct{}{}
		return nil
	}, worker.WithCrashLimit(1))
	require.NoError(t, err)
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- w.Run(ctx) }()
	require.Eventually(t, func() bool { return w.Stats().Crashed > 2 || len(handled) > 0 }, 30*time.Second, 10*time.Millisecond)
	stop()
	require.NoError(t, waittest.Next(t, ended))
	require.Empty(t, handled)
}

// Observers see the same events as after a permanent error, although no handler is called.
func TestObserversSeeAMessageAtTheCrashLimit(t *testing.T) {
	t.Parallel()
	reasons := make(chan redelivery.Reason, 10)
	c, _, _ := afterACrash(t, 1, redelivery.WithDeadLetterPolicy(redelivery.DeadLetterPolicy{MaxDeliveries: 3}),
		redelivery.WithObserver(redelivery.Observer{Settled: func(e redelivery.Settled) { reasons <- e.Reason }}))
	var handling, called atomic.Int32
	handled := make(chan worker.Handled, 10)
	handler := func(context.Context, pulsar.Message) error { called.Add(1); return nil }
	var log logtest.Buffer
	w, err := worker.New(c, handler, worker.WithCrashLimit(1), worker.WithLogger(slog.New(slog.NewTextHandler(&log, nil))),
		worker.WithObserver(worker.Observer{
			Handling: func(worker.Handling) { handling.Add(1) },
			Handled:  func(e worker.Handled) { handled <- e },
		}))
	require.NoError(t, err)
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- w.Run(ctx) }()
	e := waittest.Next(t, handled)
	stop()
	require.NoError(t, waittest.Next(t, ended))
	var crashed *worker.CrashError
	require.ErrorAs(t, e.Err, &crashed)
	require.Equal(t, redelivery.DeadLettered, e.Outcome)
	host, err := os.Hostname()
	require.NoError(t, err)
	require.Contains(t, log.String(), fmt.Sprintf(`level=WARN msg="worker: message %s was in a handler when %s/%d died, crash 1 of 1: it becomes a dead letter"`,
		e.ID, host, os.Getpid()))
	require.Equal(t, 1, strings.Count(log.String(), " died, crash "))
	require.NotContains(t, log.String(), "message failed") // no handler was called
	require.Equal(t, redelivery.ReasonCrashed, <-reasons)
	require.EqualValues(t, 1, handling.Load())
	require.EqualValues(t, 1, w.Stats().Crashed)
	require.Zero(t, called.Load())
}

// If the Worker itself tries a message again, the failures count for the next consumer. The next consumer gets the
// message without a delay, so that the order holds.
func TestLocalFailuresInKeyOrderCountAtTheNextConsumer(t *testing.T) {
	t.Parallel()
	broker := pulsartest.NewServer(t)
	client := broker.Client(t)
	options := []redelivery.Option{redelivery.WithAttemptLog(redelivery.AttemptLog{}), redelivery.WithNackRedeliveryDelay(time.Hour)}
	opts := pulsar.ConsumerOptions{Topic: "orders", SubscriptionName: "billing", Type: pulsar.KeyShared, SubscriptionInitialPosition: pulsar.SubscriptionPositionEarliest}
	c, err := redelivery.Subscribe(client, opts, append(options, redelivery.WithLogger(logtest.Logger(t)))...)
	require.NoError(t, err)
	broker.Publish(t, "orders", &pulsar.ProducerMessage{Payload: []byte("tea"), Key: "k"}, &pulsar.ProducerMessage{Payload: []byte("coffee"), Key: "k"})
	w, err := worker.New(c, func(context.Context, pulsar.Message) error { return worker.RetryAfter(time.Hour, errTest) }, worker.WithKeyOrder(),
		worker.WithDrainTimeout(0))
	require.NoError(t, err)
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- w.Run(ctx) }()
	require.Eventually(t, func() bool { return w.Stats().Failed == 1 && c.AttemptLog().Stats().Records == 1 }, 10*time.Second, time.Millisecond)
	stop()
	require.NoError(t, waittest.Next(t, ended))
	c.Close()
	c, err = redelivery.Subscribe(client, opts, append(options, redelivery.WithLogger(logtest.Logger(t)))...)
	require.NoError(t, err)
	defer c.Close()
	for count, payload := range []string{"tea", "coffee"} {
		msg, err := c.Receive(t.Context())
		require.NoError(t, err)
		require.Equal(t, payload, string(msg.Payload()))
		require.EqualValues(t, 1-count, msg.RedeliveryCount())
	}
}

// In key order, too, a snooze does not count as a failure at the next consumer.
func TestSnoozeInKeyOrderIsNotCounted(t *testing.T) {
	t.Parallel()
	for _, s := range snoozeEach(t, 3, time.Hour, worker.WithKeyOrder()) {
		require.Zero(t, s.count)
	}
}

// The next consumer does not get a snoozed message before its delay is over, though the message has not failed.
func TestSnoozeOutlivesItsConsumer(t *testing.T) {
	t.Parallel()
	const delay = 3 * time.Second
	calls := snoozeEach(t, 2, delay, worker.WithCrashLimit(3))
	early := calls[0].at.Add(delay).Sub(calls[1].at)
	require.LessOrEqual(t, early, time.Duration(0), "early")
}

// snoozeCall is a call of a handler that snoozes its message.
type snoozeCall struct {
	count uint32
	at    time.Time
}

// snoozeEach lets several consumers, one after another, take one message and snooze it, and returns the calls of the
// handlers.
func snoozeEach(t *testing.T, consumers int, delay time.Duration, option worker.Option) (all []snoozeCall) {
	broker := pulsartest.NewServer(t)
	client := broker.Client(t)
	broker.Publish(t, "orders", &pulsar.ProducerMessage{Payload: []byte("tea"), Key: "k"})
	opts := withDeadLetters(2)
	opts.SubscriptionInitialPosition = pulsar.SubscriptionPositionEarliest
	for range consumers {
		c, err := redelivery.Subscribe(client, opts, redelivery.WithAttemptLog(redelivery.AttemptLog{}), redelivery.WithLogger(logtest.Logger(t)))
		require.NoError(t, err)
		calls := make(chan snoozeCall, 1)
		w, err := worker.New(c, func(_ context.Context, msg pulsar.Message) error {
			calls <- snoozeCall{msg.RedeliveryCount(), time.Now()}
			return worker.Snooze(delay)
		}, option)
		require.NoError(t, err)
		ctx, stop := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- w.Run(ctx) }()
		select {
		case call := <-calls:
			all = append(all, call)
		case <-time.After(10 * time.Second):
			require.FailNow(t, "the message is not handled")
		}
		require.Eventually(t, func() bool {
			log := c.AttemptLog().Stats()
			return w.Stats().Snoozed == 1 && log.Records == 1 && log.Lag == 0
		}, 10*time.Second, time.Millisecond)
		stop()
		require.NoError(t, waittest.Next(t, ended))
		c.Close()
	}
	return all
}

// The messages of a non-persistent topic all have one id: a crash with one of them in a handler does not count against
// the others.
func TestCrashOnANonPersistentTopicCountsAgainstNoMessage(t *testing.T) {
	t.Parallel()
	const topic = "non-persistent://public/default/news"
	broker := pulsartest.NewServer(t)
	client := broker.Client(t)
	crashWith(t, broker, attempts.Key{Topic: topic})
	opts := orders
	opts.Topic, opts.Topics = "", []string{"orders", topic}
	c, err := redelivery.Subscribe(client, opts, redelivery.WithAttemptLog(redelivery.AttemptLog{}), redelivery.WithLogger(logtest.Logger(t)))
	require.NoError(t, err)
	defer c.Close()
	handled := make(chan string, 1)
	w, err := worker.New(c, func(_ context.Context, msg pulsar.Message) error {
		handled <- string(msg.Payload())
		return nil
	}, worker.WithCrashLimit(1))
	require.NoError(t, err)
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- w.Run(ctx) }()
	require.Eventually(t, func() bool {
		for _, s := range c.AttemptLog().Sessions() {
			if s.State == attempts.Lost {
				return true
			}
		}
		return false
	}, 15*time.Second, 10*time.Millisecond)
	p, err := client.CreateProducer(pulsar.ProducerOptions{Topic: topic})
	require.NoError(t, err)
	defer p.Close()
	_, err = p.Send(t.Context(), &pulsar.ProducerMessage{Payload: []byte("tea")})
	require.NoError(t, err)
	select {
	case payload := <-handled:
		require.Equal(t, "tea", payload)
	case <-time.After(5 * time.Second):
		require.FailNow(t, "the message is not handled", "%+v", w.Stats())
	}
	stop()
	require.NoError(t, waittest.Next(t, ended))
}

// When a suspect is handled, the previous suspect no longer counts as in a handler, even if its acknowledgement has not
// been sent. A message that the Worker keeps for another try does not count either.
func TestMessageThatLeftItsHandlerCountsNoCrash(t *testing.T) {
	t.Parallel()
	t.Run("the previous suspect", func(t *testing.T) {
		t.Parallel()
		c, broker, keys := afterACrash(t, 2)
		others, err := attempts.Open(broker.Client(t), attempts.Options{Topic: attempts.Topic(keys[0].Topic, "billing"), ReadOnly: true})
		require.NoError(t, err)
		defer others.Close()
		var first *attempts.Key
		var begun []attempts.SessionID
		ctx, stop := context.WithCancel(t.Context())
		w, err := worker.New(c, func(_ context.Context, msg pulsar.Message) error {
			if k := attempts.KeyOf(msg); first == nil {
				first = &k
				return nil
			}
			defer stop()
			// The record must change within two seconds: later it is removed, since the message is settled.
			for end := time.Now().Add(2 * time.Second); time.Now().Before(end); time.Sleep(time.Millisecond) {
				r, _ := others.Find(*first) // as the log says
				begun = append(begun, r.Begun)
				if r.Begun == 0 {
					break
				}
			}
			return nil
		}, worker.WithCrashLimit(5), worker.WithConcurrency(2))
		require.NoError(t, err)
		require.NoError(t, w.Run(ctx))
		require.NotEmpty(t, begun)
		require.Zero(t, begun[len(begun)-1])
	})
	for name, options := range map[string][]worker.Option{
		"in an outage":  {worker.WithPauseOnFailure(1, 1, backoff.Fixed(time.Hour)), worker.WithBegunAfter(0)},
		"a local retry": {worker.WithLocalRetries(1, backoff.Fixed(time.Hour)), worker.WithBegunAfter(0)},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := withOneOrder(t)
			keys := make(chan attempts.Key, 1)
			w, err := worker.New(c, func(_ context.Context, msg pulsar.Message) error {
				keys <- attempts.KeyOf(msg)
				return errTest
			}, append(options, worker.WithCrashLimit(3))...)
			require.NoError(t, err)
			ctx, stop := context.WithCancel(t.Context())
			ended := make(chan error, 1)
			go func() { ended <- w.Run(ctx) }()
			k := waittest.Next(t, keys)
			require.Eventually(t, func() bool {
				r, ok := c.AttemptLog().Find(k)
				return ok && r.Begun == 0
			}, 10*time.Second, time.Millisecond)
			stop()
			require.NoError(t, waittest.Next(t, ended))
		})
	}
}

// crashWith makes a session crash while the messages with these keys are in its handlers.
func crashWith(t *testing.T, broker *pulsartest.Server, keys ...attempts.Key) {
	client := broker.Client(t)
	l, err := attempts.Open(client, attempts.Options{Topic: attempts.Topic("persistent://public/default/orders", "billing")})
	require.NoError(t, err)
	require.NoError(t, l.Ready(t.Context()))
	l.KeepAlive()
	for _, k := range keys {
		require.NoError(t, l.Begin(t.Context(), k))
	}
	client.Close() // so that the session cannot record its end
	l.Close()
}

// afterACrash returns a Consumer of n messages that were all in handlers when another session crashed.
func afterACrash(t *testing.T, n int, options ...redelivery.Option) (*redelivery.Consumer, *pulsartest.Server, []attempts.Key) {
	broker := pulsartest.NewServer(t)
	var keys []attempts.Key
	for range n {
		id := broker.Publish(t, "orders", &pulsar.ProducerMessage{Payload: []byte("tea")})[0]
		keys = append(keys, attempts.Key{Topic: "persistent://public/default/orders", Ledger: id.Ledger, Entry: id.Entry})
	}
	crashWith(t, broker, keys...)
	opts := orders
	opts.SubscriptionInitialPosition = pulsar.SubscriptionPositionEarliest
	c, err := redelivery.Subscribe(broker.Client(t), opts, append(options, redelivery.WithAttemptLog(redelivery.AttemptLog{}), redelivery.WithLogger(logtest.Logger(t)))...)
	require.NoError(t, err)
	t.Cleanup(c.Close)
	return c, broker, keys
}

// withOneOrder returns a Consumer with a log of attempts and one message.
func withOneOrder(t *testing.T) *redelivery.Consumer {
	broker := pulsartest.NewServer(t)
	c, err := redelivery.Subscribe(broker.Client(t), orders, redelivery.WithAttemptLog(redelivery.AttemptLog{}), redelivery.WithLogger(logtest.Logger(t)))
	require.NoError(t, err)
	t.Cleanup(c.Close)
	broker.Publish(t, "orders", &pulsar.ProducerMessage{Payload: []byte("tea")})
	return c
}

func TestMessageIsRecordedWhenItsHandlerHasRunForBegunAfter(t *testing.T) {
	t.Parallel()
	for after, recorded := range map[time.Duration]bool{0: true, time.Millisecond: true, time.Hour: false} {
		t.Run(after.String(), func(t *testing.T) {
			t.Parallel()
			c := withOneOrder(t)
			for range 20000 { // a busy Worker does not record each message before it calls the handler
				c.AttemptLog().IsCareful(attempts.Key{})
			}
			ctx, stop := context.WithCancel(t.Context())
			var begun attempts.SessionID
			w, err := worker.New(c, func(_ context.Context, msg pulsar.Message) error {
				for end := time.Now().Add(10 * time.Second); time.Now().Before(end); time.Sleep(time.Millisecond) {
					r, _ := c.AttemptLog().Find(attempts.KeyOf(msg))
					begun = r.Begun
					if begun != 0 || !recorded && time.Now().After(end.Add(-9800*time.Millisecond)) {
						break
					}
				}
				stop()
				return nil
			}, worker.WithCrashLimit(3), worker.WithBegunAfter(after))
			require.NoError(t, err)
			require.NoError(t, w.Run(ctx))
			require.Equal(t, recorded, begun == c.AttemptLog().Session())
		})
	}
}

func TestQuietWorkerRecordsAMessageBeforeItCallsTheHandler(t *testing.T) {
	t.Parallel()
	c := withOneOrder(t)
	ctx, stop := context.WithCancel(t.Context())
	var lag time.Duration
	var begun attempts.SessionID
	w, err := worker.New(c, func(_ context.Context, msg pulsar.Message) error {
		r, _ := c.AttemptLog().Find(attempts.KeyOf(msg))
		begun, lag = r.Begun, c.AttemptLog().Stats().Lag
		stop()
		return nil
	}, worker.WithCrashLimit(3), worker.WithBegunAfter(time.Hour))
	require.NoError(t, err)
	require.NoError(t, w.Run(ctx))
	require.Equal(t, c.AttemptLog().Session(), begun)
	require.Less(t, lag, 5*time.Second, "the record is not written yet")
}

func TestCrashLimitWithoutALogIsRefused(t *testing.T) {
	broker := pulsartest.NewServer(t)
	c, err := redelivery.Subscribe(broker.Client(t), orders)
	require.NoError(t, err)
	defer c.Close()
	_, err = worker.New(c, func(context.Context, pulsar.Message) error { return nil }, worker.WithCrashLimit(3))
	require.ErrorIs(t, err, redelivery.ErrInvalidOption)
	require.ErrorContains(t, err, "WithAttemptLog")
	_, err = worker.New(c, func(context.Context, pulsar.Message) error { return nil }, worker.WithCrashLimit(0))
	require.ErrorContains(t, err, "WithCrashLimit is 0, want 1 or more")
	_, err = worker.New(c, func(context.Context, pulsar.Message) error { return nil }, worker.WithBegunAfter(-1))
	require.ErrorContains(t, err, "WithBegunAfter is -1ns, want 0 or more")
}

// A message that has crashed three processes becomes a dead letter.
func ExampleWithCrashLimit() {
	withOrders([]string{"tea"}, func(_ *redelivery.Consumer, broker *pulsartest.Server) {
		client, err := pulsar.NewClient(pulsar.ClientOptions{URL: broker.URL(), Logger: plog.NewLoggerWithSlog(slog.New(slog.DiscardHandler))})
		if err != nil {
			log.Fatal(err)
		}
		defer client.Close()
		consumer, err := redelivery.Subscribe(client, pulsar.ConsumerOptions{Topic: "orders", SubscriptionName: "shipping", Type: pulsar.Shared,
			DLQ: &pulsar.DLQPolicy{MaxDeliveries: 3}, SubscriptionInitialPosition: pulsar.SubscriptionPositionEarliest},
			redelivery.WithAttemptLog(redelivery.AttemptLog{}), redelivery.WithLogger(slog.New(slog.DiscardHandler)))
		if err != nil {
			log.Fatal(err)
		}
		defer consumer.Close()
		ctx, cancel := context.WithCancel(context.Background())
		w, err := worker.New(consumer, func(_ context.Context, msg pulsar.Message) error {
			fmt.Printf("%s did not crash\n", msg.Payload())
			cancel()
			return nil
		}, worker.WithCrashLimit(3), worker.WithLogger(slog.New(slog.DiscardHandler)))
		if err != nil {
			log.Fatal(err)
		}
		if err := w.Run(ctx); err != nil {
			log.Fatal(err)
		}
	})
	// Output: tea did not crash
}

// All messages of a batch were in a handler when another process crashed, so each is handled alone. Each takes one
// token of the rate limit.
func TestSuspectsOfABatchTakeATokenEach(t *testing.T) {
	t.Parallel()
	const n = 5
	c, _, _ := afterACrash(t, n)
	limiter := rate.NewLimiter(1e-9, 100)
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	var handled atomic.Int32
	w, err := worker.NewBatch(c, func(_ context.Context, msgs []pulsar.Message) error {
		if handled.Add(int32(len(msgs))) == n {
			stop()
		}
		return nil
	}, worker.Batch{}, worker.WithCrashLimit(3), worker.WithRateLimit(limiter), worker.WithLogger(quiet))
	require.NoError(t, err)
	require.NoError(t, w.Run(ctx))
	require.EqualValues(t, n, handled.Load())
	require.InDelta(t, 100-n, limiter.Tokens(), 0.1)
}
