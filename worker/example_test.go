package worker_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"log/slog"
	"strings"
	"time"

	"github.com/apache/pulsar-client-go/pulsar"
	plog "github.com/apache/pulsar-client-go/pulsar/log"

	"github.com/pulsar-redelivery/redelivery"
	"github.com/pulsar-redelivery/redelivery/backoff"
	"github.com/pulsar-redelivery/redelivery/pulsartest"
	"github.com/pulsar-redelivery/redelivery/worker"
)

// withOrders calls f with a Consumer of a topic that has some messages. The Consumer gives up on a message after three
// deliveries.
func withOrders(payloads []string, f func(*redelivery.Consumer, *pulsartest.Server)) {
	broker, err := pulsartest.Start()
	if err != nil {
		log.Fatal(err)
	}
	defer broker.Close()
	quiet := slog.New(slog.DiscardHandler)
	client, err := pulsar.NewClient(pulsar.ClientOptions{URL: broker.URL(), Logger: plog.NewLoggerWithSlog(quiet)})
	if err != nil {
		log.Fatal(err)
	}
	defer client.Close()
	consumer, err := redelivery.Subscribe(client, pulsar.ConsumerOptions{Topic: "orders", SubscriptionName: "billing",
		Type: pulsar.Shared, DLQ: &pulsar.DLQPolicy{MaxDeliveries: 3}},
		redelivery.WithNackRedeliveryBackoff(backoff.Exponential{Min: 10 * time.Millisecond, Max: time.Second}),
		redelivery.WithLogger(quiet))
	if err != nil {
		log.Fatal(err)
	}
	defer consumer.Close()
	producer, err := client.CreateProducer(pulsar.ProducerOptions{Topic: "orders", DisableBatching: true})
	if err != nil {
		log.Fatal(err)
	}
	defer producer.Close()
	for _, payload := range payloads {
		guest, _, _ := strings.Cut(payload, ":")
		if _, err := producer.Send(context.Background(), &pulsar.ProducerMessage{Payload: []byte(payload), Key: guest}); err != nil {
			log.Fatal(err)
		}
	}
	limit := time.AfterFunc(time.Minute, consumer.Close) // ends an example that would otherwise wait for ever
	defer limit.Stop()
	f(consumer, broker)
}

func ExampleNew() {
	withOrders([]string{"tea", "nonsense", "coffee"}, func(consumer *redelivery.Consumer, broker *pulsartest.Server) {
		ctx, cancel := context.WithCancel(context.Background()) // a service calls signal.NotifyContext here
		w, err := worker.New(consumer, func(_ context.Context, msg pulsar.Message) error {
			order := string(msg.Payload())
			fmt.Println(order, msg.RedeliveryCount())
			switch {
			case order == "nonsense":
				return worker.Permanent(errors.New("no such drink"))
			case order == "coffee" && msg.RedeliveryCount() == 0:
				return errors.New("the machine is cold") // comes back after 10 ms
			case order == "coffee":
				cancel()
			}
			return nil
		}, worker.WithConcurrency(1), worker.WithTimeout(time.Minute), worker.WithLogger(slog.New(slog.DiscardHandler)))
		if err != nil {
			log.Fatal(err)
		}
		if err := w.Run(ctx); err != nil {
			log.Fatal(err)
		}
		for _, letter := range broker.Messages("orders-billing-DLQ") {
			fmt.Printf("dead: %s, %s\n", letter.Payload, letter.Properties["EXCEPTION_MESSAGE"])
		}
		stats := w.Stats()
		fmt.Println("succeeded", stats.Succeeded, "failed", stats.Failed, "permanent", stats.Permanent)
	})
	// Output:
	// tea 0
	// nonsense 0
	// coffee 0
	// coffee 1
	// dead: nonsense, no such drink
	// succeeded 2 failed 1 permanent 1
}

// A batch is written in one statement. Orders that the database refuses become dead letters; the others succeed.
func ExampleNewBatch() {
	withOrders([]string{"tea", "nonsense", "coffee"}, func(consumer *redelivery.Consumer, broker *pulsartest.Server) {
		ctx, cancel := context.WithCancel(context.Background())
		w, err := worker.NewBatch(consumer, func(_ context.Context, msgs []pulsar.Message) error {
			defer cancel()
			refused := worker.BatchError{}
			for i, msg := range msgs {
				if string(msg.Payload()) == "nonsense" {
					refused[i] = worker.Permanent(errors.New("no such drink"))
				}
			}
			fmt.Printf("%d orders, %d refused\n", len(msgs), len(refused))
			return refused
		}, worker.Batch{MaxMessages: 3, MaxWait: time.Minute}, worker.WithLogger(slog.New(slog.DiscardHandler)))
		if err != nil {
			log.Fatal(err)
		}
		if err := w.Run(ctx); err != nil {
			log.Fatal(err)
		}
		fmt.Printf("%d dead letter\n", len(broker.Messages("orders-billing-DLQ")))
	})
	// Output:
	// 3 orders, 1 refused
	// 1 dead letter
}

// The second order of a guest waits for the first one, which has to be tried again; other guests do not wait.
func ExampleWithKeyOrder() {
	withOrders([]string{"anna: soup", "anna: cake", "bob: tea"}, func(consumer *redelivery.Consumer, _ *pulsartest.Server) {
		ctx, cancel := context.WithCancel(context.Background())
		w, err := worker.New(consumer, func(_ context.Context, msg pulsar.Message) error {
			fmt.Printf("%s, %d\n", msg.Payload(), msg.RedeliveryCount())
			switch {
			case string(msg.Payload()) == "anna: soup" && msg.RedeliveryCount() < 2:
				return errors.New("too salty")
			case string(msg.Payload()) == "anna: cake":
				cancel()
			}
			return nil
		}, worker.WithKeyOrder(), worker.WithConcurrency(1), worker.WithLogger(slog.New(slog.DiscardHandler)))
		if err != nil {
			log.Fatal(err)
		}
		if err := w.Run(ctx); err != nil {
			log.Fatal(err)
		}
	})
	// Output:
	// anna: soup, 0
	// bob: tea, 0
	// anna: soup, 1
	// anna: soup, 2
	// anna: cake, 0
}

// While the kitchen is closed, one order at a time is tried. The first two tries of each order do not count as
// attempts.
func ExampleWithPauseOnFailure() {
	withOrders([]string{"soup", "cake", "tea"}, func(consumer *redelivery.Consumer, broker *pulsartest.Server) {
		ctx, cancel := context.WithCancel(context.Background())
		calls := 0
		var w *worker.Worker
		w, err := worker.New(consumer, func(_ context.Context, msg pulsar.Message) error {
			calls++
			fmt.Printf("%s, outage: %v\n", msg.Payload(), w.Stats().Outage)
			if calls == 7 {
				cancel()
			}
			if calls <= 4 {
				return errors.New("the kitchen is closed")
			}
			return nil
		}, worker.WithPauseOnFailure(3, 0.5, backoff.Fixed(50*time.Millisecond)), worker.WithConcurrency(1),
			worker.WithLogger(slog.New(slog.DiscardHandler)))
		if err != nil {
			log.Fatal(err)
		}
		if err := w.Run(ctx); err != nil {
			log.Fatal(err)
		}
		fmt.Println("dead letters:", len(broker.Messages("orders-billing-DLQ")))
	})
	// Output:
	// soup, outage: false
	// cake, outage: false
	// tea, outage: false
	// tea, outage: true
	// soup, outage: true
	// cake, outage: false
	// tea, outage: false
	// dead letters: 0
}

// An order that fails and is too old is not tried again: it becomes a dead letter, with the reason.
func ExampleWithMaxAge() {
	withOrders([]string{"soup"}, func(consumer *redelivery.Consumer, broker *pulsartest.Server) {
		ctx, cancel := context.WithCancel(context.Background())
		w, err := worker.New(consumer, func(context.Context, pulsar.Message) error {
			defer cancel()
			time.Sleep(2 * time.Millisecond)
			return errors.New("too salty")
		}, worker.WithMaxAge(time.Millisecond), worker.WithLogger(slog.New(slog.DiscardHandler)))
		if err != nil {
			log.Fatal(err)
		}
		if err := w.Run(ctx); err != nil {
			log.Fatal(err)
		}
		for _, letter := range broker.Messages("orders-billing-DLQ") {
			fmt.Printf("dead: %s, %s\n", letter.Payload, letter.Properties["EXCEPTION_MESSAGE"])
		}
	})
	// Output: dead: soup, older than 1ms: too salty
}
