package workertest_test

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"log"
	"testing"
	"testing/synctest"
	"time"

	"github.com/apache/pulsar-client-go/pulsar"

	"github.com/pulsar-redelivery/redelivery"
	"github.com/pulsar-redelivery/redelivery/backoff"
	"github.com/pulsar-redelivery/redelivery/worker"
	"github.com/pulsar-redelivery/redelivery/worker/workertest"
)

// test runs a test inside an example.
func test(f func(t *testing.T)) {
	for name, value := range map[string]string{"test.v": "false", "test.count": "1", "test.cpu": ""} {
		// so that only the example prints
		before := flag.Lookup(name).Value.String()
		if err := flag.Set(name, value); err != nil {
			log.Fatal(err)
		}
		defer func() { _ = flag.Set(name, before) }()
	}
	all := func(string, string) (bool, error) { return true, nil }
	testing.RunTests(all, []testing.InternalTest{{Name: "Test", F: f}})
}

// order returns a message whose key is the guest.
func order(guest, what string) *pulsar.ProducerMessage {
	return &pulsar.ProducerMessage{Key: guest, Payload: []byte(what)}
}

var setup = workertest.Setup{
	Consumer:   pulsar.ConsumerOptions{Type: pulsar.Shared, DLQ: &pulsar.DLQPolicy{MaxDeliveries: 3}},
	Redelivery: []redelivery.Option{redelivery.WithNackRedeliveryBackoff(backoff.Exponential{})},
}

// Run handles each message by itself, and returns what became of it at each delivery.
func ExampleSetup_Run() {
	serve := func(_ context.Context, msg pulsar.Message) error {
		switch {
		case string(msg.Payload()) == "nonsense":
			return worker.Permanent(errors.New("no such drink"))
		case msg.RedeliveryCount() == 0:
			return errors.New("the machine is cold")
		}
		return nil
	}
	test(func(t *testing.T) {
		for _, attempts := range setup.Run(t, serve, order("anna", "coffee"), order("bob", "nonsense")) {
			for _, row := range attempts.Strings() {
				fmt.Println(row)
			}
		}
	})
	// Output:
	// the machine is cold: back after 1s
	// acked
	// no such drink: dead letter: no such drink
}

// Three orders that cannot be made come at once, enough to look like an outage. They become dead letters, and the other
// order is served.
func ExampleSetup_Subscription() {
	serve := func(_ context.Context, msg pulsar.Message) error {
		if string(msg.Payload()) == "nonsense" {
			return errors.New("no such drink")
		}
		return nil
	}
	test(func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			orders := setup.Subscription(t)
			orders.Start(serve, worker.WithConcurrency(2), worker.WithPauseOnFailure(3, 1, backoff.Fixed(time.Second)))
			orders.Publish(order("anna", "nonsense"), order("anna", "nonsense"), order("anna", "nonsense"),
				order("bob", "tea"))
			orders.Settle(time.Minute)
			for _, attempts := range orders.Attempts() {
				last := attempts[len(attempts)-1]
				fmt.Println(string(last.Message.Payload), "acked:", last.Acked, "dead:", last.Dead)
			}
		})
	})
	// Output:
	// nonsense acked: false dead: true
	// nonsense acked: false dead: true
	// nonsense acked: false dead: true
	// tea acked: true dead: false
}

// A database that refuses a row refuses its whole batch. The Worker finds the row.
func ExampleSubscription_StartBatch() {
	insert := func(_ context.Context, msgs []pulsar.Message) error {
		for _, msg := range msgs {
			if string(msg.Payload()) == "nonsense" {
				return errors.New("constraint violated")
			}
		}
		return nil
	}
	test(func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			rows := setup.Subscription(t)
			rows.StartBatch(insert, worker.Batch{MaxMessages: 4}, worker.WithConcurrency(1))
			rows.Publish(order("anna", "tea"), order("bob", "nonsense"), order("eve", "coffee"), order("dan", "water"))
			rows.Settle(time.Minute)
			for _, attempts := range rows.Attempts() {
				fmt.Println(attempts[len(attempts)-1].Message.Key, attempts[len(attempts)-1])
			}
		})
	})
	// Output:
	// anna acked
	// bob constraint violated: dead letter: constraint violated
	// eve acked
	// dan acked
}

// The kitchen is closed for a minute. The orders are tried one at a time, and none is given up.
func ExampleSubscription_Outage() {
	serve := func(context.Context, pulsar.Message) error { return nil }
	test(func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			orders := setup.Subscription(t)
			w := orders.Start(serve, worker.WithConcurrency(1),
				worker.WithPauseOnFailure(2, 1, backoff.Fixed(30*time.Second)))
			orders.Outage(errors.New("the kitchen is closed"))
			orders.Publish(order("anna", "tea"), order("bob", "coffee"), order("eve", "water"))
			time.Sleep(time.Minute - time.Second)
			fmt.Println("calls:", len(orders.Calls()), "outage:", w.Stats().Outage)
			orders.Outage(nil)
			orders.Settle(time.Minute)
			for _, attempts := range orders.Attempts() {
				fmt.Println(string(attempts[0].Message.Payload), attempts[len(attempts)-1])
			}
		})
	})
	// Output:
	// calls: 3 outage: true
	// tea acked
	// coffee acked
	// water acked
}

// While anna's first order waits for its next try, a second Worker becomes the active one. It serves both of her
// orders, in their order.
func ExampleSubscription_Elect() {
	serve := func(_ context.Context, msg pulsar.Message) error {
		if string(msg.Payload()) == "soup" && msg.RedeliveryCount() == 0 {
			return errors.New("too salty")
		}
		return nil
	}
	setup := workertest.Setup{Consumer: pulsar.ConsumerOptions{Type: pulsar.Failover},
		Worker: []worker.Option{worker.WithKeyOrder()}}
	test(func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			orders := setup.Subscription(t)
			orders.Start(serve)
			orders.Start(serve)
			orders.Publish(order("anna", "soup"), order("anna", "cake"))
			time.Sleep(10 * time.Second)
			orders.Elect()
			orders.Settle(time.Hour)
			time.Sleep(time.Hour) // long enough to see messages that are handled again
			for _, a := range orders.Calls() {
				fmt.Println("at", a.At, "worker", a.Worker, string(a.Message.Payload), a.Err)
			}
		})
	})
	// Output:
	// at 0s worker 0 soup too salty
	// at 10s worker 1 soup too salty
	// at 1m10s worker 1 soup <nil>
	// at 1m10s worker 1 cake <nil>
}
