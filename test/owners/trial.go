package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/apache/pulsar-client-go/pulsar"
	plog "github.com/apache/pulsar-client-go/pulsar/log"

	"github.com/pulsar-redelivery/redelivery"
	"github.com/pulsar-redelivery/redelivery/backoff"
	"github.com/pulsar-redelivery/redelivery/internal/admin"
	"github.com/pulsar-redelivery/redelivery/internal/topicname"
	"github.com/pulsar-redelivery/redelivery/worker"
)

var (
	quiet  = slog.New(slog.DiscardHandler)
	silent = plog.NewLoggerWithSlog(quiet)
)

// keys are how many there are. A message is handled in a millisecond or two, one in twenty of each key fails twice, and a key fails for three
// seconds now and then.
const keys = 50

// trial is one topic and its Workers.
type trial struct {
	client     pulsar.Client
	admin      string
	kind       pulsar.SubscriptionType
	partitions int
	ordered    bool
	traced     bool
	random     *rand.Rand
	grouping   *pulsar.AckGroupingOptions

	topic                       string
	journal                     *journal
	crew                        []*member
	joins, leaves, unloads, now int
	sent                        int
	dropped                     uint64
	err                         error
}

// member is a Worker of the crew.
type member struct {
	worker *worker.Worker
	leave  func() error
}

func (t *trial) run(during time.Duration) error {
	ctx, cancel := context.WithTimeout(context.Background(), during+3*time.Minute)
	defer cancel()
	t.topic = topicname.Full(fmt.Sprintf("owners-%08x", rand.Uint32()))
	t.journal = newJournal()
	if t.traced {
		t.journal.trace = &trace{of: map[string][]event{}}
	}
	if t.partitions > 0 {
		if err := admin.Call(ctx, t.admin, "PUT", admin.Topic(t.topic)+"/partitions", t.partitions, nil); err != nil {
			return err
		}
	}
	for range 2 {
		if err := t.join(); err != nil {
			return err
		}
	}
	end := time.Now().Add(during)
	var publishing sync.WaitGroup
	var failed error
	publishing.Go(func() { failed = t.publish(ctx, end) })
	var err error
	for err == nil && time.Now().Before(end) {
		time.Sleep(time.Duration(500+t.random.IntN(4500)) * time.Millisecond)
		err = t.happen(ctx)
	}
	publishing.Wait()
	t.journal.heal()
	if err = errors.Join(err, failed); err == nil {
		_ = until(ctx, func() bool { return t.journal.figures().succeeded == t.sent })
		time.Sleep(10 * time.Second) // for what may come again
	}
	for len(t.crew) > 0 {
		err = errors.Join(err, t.quit())
	}
	return err
}

// happen is the next event.
func (t *trial) happen(ctx context.Context) error {
	switch n := t.random.IntN(4); {
	case n == 0 && len(t.crew) < 4, len(t.crew) == 1:
		t.joins++
		return t.join()
	case n == 1 && len(t.crew) > 1:
		t.leaves++
		return t.quit()
	default:
		t.unloads++
		topic, which := t.topic, t.random.IntN(5)
		if which < t.partitions {
			topic = fmt.Sprintf("%s-partition-%d", topic, which)
		}
		t.journal.trace.note("", "", "UNLOAD", topic)
		defer t.journal.trace.note("", "", "UNLOADED", topic)
		return admin.Call(ctx, t.admin, "PUT", admin.Topic(topic)+"/unload", nil, nil)
	}
}

// errHangs says that pulsar-client-go does not return: a partition that reconnects while the subscription to another one fails waits for a
// dispatcher that was not started, and closing it waits for the reconnection.
var errHangs = errors.New("pulsar-client-go's Subscribe does not return")

// subscribe waits for a Consumer for a minute.
func (t *trial) subscribe(opts pulsar.ConsumerOptions, options ...redelivery.Option) (*redelivery.Consumer, error) {
	type result struct {
		*redelivery.Consumer
		error
	}
	done := make(chan result, 1)
	go func() {
		c, err := redelivery.Subscribe(t.client, opts, options...)
		done <- result{c, err}
	}()
	select {
	case r := <-done:
		return r.Consumer, r.error
	case <-time.After(time.Minute):
		return nil, errHangs
	}
}

func (t *trial) join() error {
	t.now++
	name := fmt.Sprintf("%03d", (t.now*37)%1000)
	t.journal.trace.note("", name, "JOINS")
	c, err := t.subscribe(pulsar.ConsumerOptions{Topic: t.topic, SubscriptionName: "sub", Type: t.kind,
		Name: name, SubscriptionInitialPosition: pulsar.SubscriptionPositionEarliest,
		AckGroupingOptions: t.grouping, EventListener: listener{t.journal.trace, name}},
		redelivery.WithNackRedeliveryBackoff(backoff.Exponential{Min: 200 * time.Millisecond, Max: 3 * time.Second}), redelivery.WithLogger(quiet),
		redelivery.WithObserver(redelivery.Observer{Lost: t.journal.loses, Dropped: t.journal.receives,
			Delivered: func(e redelivery.Delivered) { t.journal.receives(e.Event) }}),
		redelivery.WithObserver(t.journal.trace.observer(name)))
	if err != nil {
		return err
	}
	options := []worker.Option{worker.WithConcurrency(8), worker.WithLogger(quiet)}
	if t.ordered {
		options = append(options, worker.WithKeyOrder())
	}
	w, err := worker.New(c, func(_ context.Context, msg pulsar.Message) error { return t.journal.handle(c, msg) }, options...)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- w.Run(ctx) }()
	t.crew = append(t.crew, &member{w, func() error {
		t.journal.trace.note("", name, "LEAVES")
		cancel()
		err := <-done
		c.Close()
		t.journal.trace.note("", name, "CLOSED")
		return err
	}})
	return nil
}

// quit has the member leave that has been there for longest.
func (t *trial) quit() error {
	m := t.crew[0]
	t.crew = t.crew[1:]
	err := m.leave()
	t.dropped += m.worker.Stats().Lost
	return err
}

// publish sends messages of all keys in turn, two hundred a second.
func (t *trial) publish(ctx context.Context, end time.Time) error {
	producer, err := t.client.CreateProducer(pulsar.ProducerOptions{Topic: t.topic, DisableBatching: true})
	if err != nil {
		return err
	}
	defer producer.Close()
	var failed error
	var mu sync.Mutex
	for n := 0; time.Now().Before(end); n++ {
		key := fmt.Sprint("key", n%keys)
		producer.SendAsync(ctx, &pulsar.ProducerMessage{Payload: fmt.Appendf(nil, "%s/%d", key, n/keys), Key: key},
			func(_ pulsar.MessageID, _ *pulsar.ProducerMessage, err error) {
				mu.Lock()
				defer mu.Unlock()
				if err == nil {
					t.sent++
				} else if failed == nil {
					failed = err
				}
			})
		time.Sleep(5 * time.Millisecond)
	}
	err = producer.FlushWithCtx(ctx)
	mu.Lock()
	defer mu.Unlock()
	return errors.Join(err, failed)
}
