// Package workertest tests handlers of package worker. A test passes messages in, and learns what became of each
// message at each delivery.
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
// Setup.Run handles each message by itself. Setup.Subscription is for effects between messages: batches, poison among
// good messages, outages, order per key, several Workers that join and leave.
//
//	synctest.Test(t, func(t *testing.T) {
//		orders := setup.Subscription(t)
//		orders.Start(handle)
//		orders.Publish(msgs...)
//		orders.Settle(time.Hour)
//		for i, attempts := range orders.Attempts() { ...
//
// Real Consumers and real Workers run on a client without a network, in the virtual time of testing/synctest: delays
// are exact, and even a delay of hours takes no time. Only a retry from the retry topic comes up to a millisecond
// later, as it does at a broker: publish times are in whole milliseconds, and the Consumer rounds up so that no retry
// is early. The handler must suit synctest: goroutines that it starts must end, and a wait for something outside of the
// test, such as a real server, takes real time.
//
// Producers send no batches here, and there is no log of attempts (redelivery.WithAttemptLog). Package pulsartest has a
// broker for these, and for tests with connections.
package workertest

import (
	"cmp"
	"testing"
	"testing/synctest"
	"time"

	"github.com/apache/pulsar-client-go/pulsar"

	"github.com/pulsar-redelivery/redelivery"
	"github.com/pulsar-redelivery/redelivery/worker"
)

// Setup has the options of the Consumers and the Workers that call a handler. The zero value has the defaults of
// redelivery.Subscribe and worker.New.
type Setup struct {
	Consumer   pulsar.ConsumerOptions // Topic and SubscriptionName may be empty; retries need Type pulsar.Shared
	Redelivery []redelivery.Option
	Worker     []worker.Option
	// the most calls of the handler that Run makes for a message; the next delivery is acknowledged without a call. 0
	// means 10; negative numbers are not allowed
	Attempts int
}

// Run passes the messages to handler one after the other, each with its own Consumer and Worker, and returns the
// attempts of each message. It fails the test if a message is not settled within 60 days of virtual time; for longer
// delays use Subscription.Settle. Run starts a bubble of testing/synctest, so it cannot be called inside one.
func (s Setup) Run(t *testing.T, handler worker.Handler, msgs ...*pulsar.ProducerMessage) []Attempts {
	t.Helper()
	if s.Attempts < 0 {
		t.Fatalf("workertest: Setup.Attempts is %d, want 0 or more", s.Attempts)
	}
	var all []Attempts
	synctest.Test(t, func(t *testing.T) {
		for _, msg := range msgs {
			all = append(all, s.one(t, handler, msg))
		}
	})
	return all
}

// one runs a Consumer and a Worker until one message is settled.
func (s Setup) one(t *testing.T, handler worker.Handler, msg *pulsar.ProducerMessage) Attempts {
	t.Helper()
	x := s.Subscription(t)
	x.recorder.limit = cmp.Or(s.Attempts, 10)
	w := x.Start(handler)
	x.Publish(msg)
	const days = 60 // a longer time takes much real time, since a Worker may wake up in each virtual second
	left := x.await(days * 24 * time.Hour)
	w.Stop()
	if len(left) > 0 {
		t.Errorf("workertest: a message is not settled after %d days: %s", days, x.recorder.describe(left[0]))
	}
	return x.Attempts()[0]
}
