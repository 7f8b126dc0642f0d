// Package workertest tests handlers of package worker: messages in, what becomes of them at each delivery out.
//
//	func TestOrders(t *testing.T) {
//		setup := workertest.Setup{
//			Consumer:   pulsar.ConsumerOptions{DLQ: &pulsar.DLQPolicy{MaxDeliveries: 3}},
//			Redelivery: []redelivery.Option{redelivery.WithNackRedeliveryBackoff(backoff.Exponential{})},
//		}
//		got := setup.Run(t, handle, &pulsar.ProducerMessage{Payload: []byte(`{"id": 7}`)})
//		want := []string{
//			"no answer: back after 1s",
//			"no answer: back after 2s",
//			"no answer: dead letter: no answer",
//		}
//		if !slices.Equal(got[0].Strings(), want) { ...
//
// A real Consumer and a real Worker run on a client without a network, in the virtual time of testing/synctest: delays are exact,
// and of hours too take no time. What the handler does must fit in there: goroutines that it starts must end, and what it waits for
// outside of the test's goroutines, such as a real server, takes its real time. Package pulsartest is for tests with connections.
package workertest

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/apache/pulsar-client-go/pulsar"

	"github.com/pulsar-redelivery/redelivery"
	"github.com/pulsar-redelivery/redelivery/reconsume"
	"github.com/pulsar-redelivery/redelivery/worker"
	"github.com/pulsar-redelivery/redelivery/worker/internal/virtual"
)

// Setup is what a handler runs with. The zero value has the defaults of redelivery.Subscribe and worker.New.
type Setup struct {
	Consumer   pulsar.ConsumerOptions // Topic and SubscriptionName may be empty
	Redelivery []redelivery.Option
	Worker     []worker.Option
	Attempts   int // after which a message that still fails is acknowledged without a call of the handler; 0 means 10
}

// Attempt is a call of the handler, and what became of its message.
type Attempt struct {
	Redeliveries uint32        // msg.RedeliveryCount()
	Err          error         // what the handler returned, before WithClassifier; a *worker.PanicError if it panicked
	Took         time.Duration // what the handler took
	Acked        bool
	Dead         bool          // the message became a dead letter
	Reason       string        // of the dead letter
	Back         time.Duration // after which the message came back, if it was neither acknowledged nor a dead letter
}

// String says what became of the message, after the error if there was one: "acked", "timeout: back after 2s",
// "timeout: dead letter: timeout".
func (a Attempt) String() string {
	var s string
	switch {
	case a.Dead:
		s = "dead letter: " + a.Reason
	case a.Acked:
		s = "acked"
	default:
		s = fmt.Sprintf("back after %v", a.Back)
	}
	if a.Err != nil {
		return fmt.Sprintf("%v: %s", a.Err, s)
	}
	return s
}

// Attempts are those of one message.
type Attempts []Attempt

// Strings has a row for each.
func (a Attempts) Strings() (rows []string) {
	for _, attempt := range a {
		rows = append(rows, attempt.String())
	}
	return rows
}

// Run has the messages handled one after the other, each by a Consumer and a Worker of its own, and returns the attempts for each.
// It fails the test if a message is not settled within a year. It starts a bubble of testing/synctest, so it cannot run inside one.
func (s Setup) Run(t *testing.T, handler worker.Handler, msgs ...*pulsar.ProducerMessage) []Attempts {
	t.Helper()
	var all []Attempts
	synctest.Test(t, func(t *testing.T) {
		for _, msg := range msgs {
			all = append(all, s.one(t, handler, msg))
		}
	})
	return all
}

// one runs a Consumer and a Worker for one message.
func (s Setup) one(t *testing.T, handler worker.Handler, msg *pulsar.ProducerMessage) Attempts {
	t.Helper()
	opts := s.Consumer
	if opts.Topic == "" && len(opts.Topics) == 0 {
		opts.Topic = "topic"
	}
	opts.SubscriptionName = cmp.Or(opts.SubscriptionName, "subscription")
	quiet := slog.New(slog.DiscardHandler)
	broker := &virtual.Broker{}
	consumer, err := redelivery.Subscribe(broker, opts, slices.Concat(
		[]redelivery.Option{redelivery.WithLogger(quiet)}, s.Redelivery)...)
	if err != nil {
		t.Fatalf("workertest: %v", err)
	}
	defer consumer.Close()
	r := &recorder{limit: cmp.Or(s.Attempts, 10)}
	w, err := worker.New(consumer, handler, slices.Concat(
		[]worker.Option{worker.WithLogger(quiet), worker.WithMiddleware(r.middleware)}, s.Worker)...)
	if err != nil {
		t.Fatalf("workertest: %v", err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error)
	go func() { done <- w.Run(ctx) }()
	topic := append(opts.Topics, opts.Topic)[0]
	broker.Publish(topic, msg)
	const year = 365 * 24 * time.Hour
	for pause := time.Millisecond; len(broker.Unacked()) > 0 && pause < year; pause *= 2 {
		time.Sleep(pause)
	}
	left := len(broker.Unacked()) > 0
	cancel()
	if err := <-done; err != nil {
		t.Errorf("workertest: %v", err)
	} else if left {
		t.Errorf("workertest: message %q is not settled after a year", msg.Payload)
	}
	return r.settled(broker.Published(deadLetterTopic(opts, topic)), left)
}

func deadLetterTopic(opts pulsar.ConsumerOptions, topic string) string {
	if opts.DLQ != nil && opts.DLQ.DeadLetterTopic != "" {
		return opts.DLQ.DeadLetterTopic
	}
	return topic + "-" + opts.SubscriptionName + pulsar.DlqTopicSuffix
}

// recorder is a middleware that notes what a handler returns.
type recorder struct {
	limit int // of attempts, after which the handler is not called any more

	mu       sync.Mutex
	attempts Attempts
	ended    time.Time // the last attempt
}

var errExited = errors.New("the handler called runtime.Goexit")

func (r *recorder) middleware(next worker.Handler) worker.Handler {
	return func(ctx context.Context, msg pulsar.Message) (err error) {
		began := time.Now()
		r.mu.Lock()
		n := len(r.attempts)
		if n > 0 {
			r.attempts[n-1].Back = began.Sub(r.ended)
		}
		r.mu.Unlock()
		if n == r.limit {
			return nil
		}
		err = errExited
		defer func() {
			r.mu.Lock()
			defer r.mu.Unlock()
			r.ended = time.Now()
			r.attempts = append(r.attempts, Attempt{Redeliveries: msg.RedeliveryCount(), Err: err, Took: r.ended.Sub(began)})
		}()
		err = next(ctx, msg)
		return err
	}
}

// settled returns the attempts, with what became of the message after the last one.
func (r *recorder) settled(letters []*pulsar.ProducerMessage, left bool) Attempts {
	r.mu.Lock()
	defer r.mu.Unlock()
	if n := len(r.attempts); n > 0 && r.attempts[n-1].Back == 0 && !left {
		last := &r.attempts[n-1]
		if len(letters) > 0 {
			last.Dead, last.Reason = true, letters[0].Properties[reconsume.PropertyException]
		} else {
			last.Acked = true
		}
	}
	return r.attempts
}
