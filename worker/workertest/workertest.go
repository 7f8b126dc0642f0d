// Package workertest tests handlers of package worker. A test passes in messages, and gets back what became of each at each
// delivery.
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
// and even a delay of hours takes no time. Only a retry from the retry topic comes up to a millisecond later, as it does at a broker:
// publish times are in whole milliseconds, and the Consumer rounds up so that no retry is early. The handler must suit synctest:
// goroutines that it starts must end, and a wait for something outside of the test, such as a real server, takes real time.
//
// A worker.BatchHandler cannot be tested here. Package pulsartest has a broker for that, and for tests with connections.
package workertest

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime/debug"
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

// Setup has the options of the Consumer and the Worker that call a handler. The zero value has the defaults of
// redelivery.Subscribe and worker.New.
type Setup struct {
	Consumer   pulsar.ConsumerOptions // Topic and SubscriptionName may be empty; retries need Type pulsar.Shared
	Redelivery []redelivery.Option
	Worker     []worker.Option
	Attempts   int // a message that still fails after so many is acknowledged without calling the handler; 0 means 10
}

// Attempt is one call of the handler, and what became of its message.
type Attempt struct {
	Redeliveries uint32        // msg.RedeliveryCount()
	Err          error         // what the handler returned, before WithClassifier; a *worker.PanicError if it panicked
	Took         time.Duration // how long the handler took
	Acked        bool
	Dead         bool   // the message became a dead letter
	Reason       string // the reason in the dead letter
	// Back is how long after the attempt the message came back; negative if that was before the handler returned, as after an ack
	// timeout; 0 if it was acknowledged or became a dead letter.
	Back time.Duration
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
	case a.Back < 0:
		s = fmt.Sprintf("back %v before it returned", -a.Back)
	default:
		s = fmt.Sprintf("back after %v", a.Back)
	}
	if a.Err != nil {
		return fmt.Sprintf("%v: %s", a.Err, s)
	}
	return s
}

// Attempts are the attempts of one message.
type Attempts []Attempt

// Strings returns Attempt.String of each attempt.
func (a Attempts) Strings() (rows []string) {
	for _, attempt := range a {
		rows = append(rows, attempt.String())
	}
	return rows
}

// Run passes the messages to handler one after the other, each with its own Consumer and Worker, and returns the attempts of each
// message. It fails the test if a message is not settled within a year of virtual time. Run starts a bubble of testing/synctest,
// so it cannot be called inside one.
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
	attempts []*Attempt
	began    []time.Time // each attempt, and the first call past the limit
}

var errExited = errors.New("the handler called runtime.Goexit")

func (r *recorder) middleware(next worker.Handler) worker.Handler {
	return func(ctx context.Context, msg pulsar.Message) (err error) {
		began := time.Now()
		a := &Attempt{Redeliveries: msg.RedeliveryCount(), Err: errExited}
		r.mu.Lock()
		over := len(r.attempts) == r.limit
		if len(r.began) <= r.limit {
			r.began = append(r.began, began)
		}
		if !over {
			r.attempts = append(r.attempts, a)
		}
		r.mu.Unlock()
		if over {
			return nil
		}
		err = errExited
		defer func() {
			v := recover() // of a middleware; the Worker has recovered the handler's
			if v != nil {
				err = &worker.PanicError{Value: v, Stack: debug.Stack()}
				defer panic(v) // the Worker counts it
			}
			r.mu.Lock()
			defer r.mu.Unlock()
			a.Err, a.Took = err, time.Since(began)
		}()
		err = next(ctx, msg)
		return err
	}
}

// settled returns the attempts, with what became of the message after the last one.
func (r *recorder) settled(letters []*pulsar.ProducerMessage, left bool) (all Attempts) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for i, a := range r.attempts {
		switch {
		case i+1 < len(r.began):
			a.Back = r.began[i+1].Sub(r.began[i]) - a.Took
		case left:
		case len(letters) > 0:
			a.Dead, a.Reason = true, letters[0].Properties[reconsume.PropertyExceptionMessage]
		default:
			a.Acked = true
		}
		all = append(all, *a)
	}
	return all
}
