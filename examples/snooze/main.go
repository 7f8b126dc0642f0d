// Snooze handles an order that comes before its customer is known. That is no failure, so the handler returns
// worker.Snooze: the order comes back later, and its redelivery count stays 0. Another order fails, and its count
// grows.
package main

import (
	"context"
	"errors"
	"fmt"
	"log"
	"log/slog"
	"time"

	"github.com/apache/pulsar-client-go/pulsar"

	"github.com/pulsar-redelivery/redelivery"
	"github.com/pulsar-redelivery/redelivery/backoff"
	"github.com/pulsar-redelivery/redelivery/examples/internal/demo"
	"github.com/pulsar-redelivery/redelivery/worker"
)

const knownAfter, snooze = 1200 * time.Millisecond, 500 * time.Millisecond

const intro = `The customer of "early" is known after 1.2 s; until then the handler snoozes it for 500 ms. "flaky" fails twice, and comes back
after 300 ms and 600 ms.

   time   order   redelivery   the handler returns
`

func main() {
	if err := run(); err != nil {
		log.Fatal(err)
	}
}

func run() error {
	client, stop, err := demo.Connect()
	if err != nil {
		return err
	}
	defer stop()
	topic := demo.Topic("snooze")
	quiet := slog.New(slog.DiscardHandler)
	consumer, err := redelivery.Subscribe(client,
		pulsar.ConsumerOptions{Topic: topic, SubscriptionName: "billing", Type: pulsar.Shared},
		redelivery.WithLogger(quiet),
		redelivery.WithNackRedeliveryBackoff(backoff.Exponential{Min: 300 * time.Millisecond}))
	if err != nil {
		return err
	}
	defer consumer.Close()
	if err := publish(client, topic); err != nil {
		return err
	}

	began, open, counts := time.Now(), 2, map[string]uint32{}
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	charge := func(_ context.Context, msg pulsar.Message) error {
		name, now := string(msg.Payload()), time.Since(began)
		err := errors.New("out of luck")
		switch {
		case name == "early" && now < knownAfter:
			err = worker.Snooze(snooze)
		case name == "early" || msg.RedeliveryCount() == 2:
			err = nil
		}
		returns := "nil"
		if err != nil {
			returns = err.Error()
		}
		fmt.Printf("%6.2fs  %-5s %12d   %s\n", now.Seconds(), name, msg.RedeliveryCount(), returns)
		counts[name] = msg.RedeliveryCount()
		if err == nil {
			open--
		}
		if open == 0 {
			cancel()
		}
		return err
	}
	w, err := worker.New(consumer, charge, worker.WithConcurrency(1), worker.WithLogger(quiet))
	if err != nil {
		return err
	}
	fmt.Print(intro)
	if err := w.Run(ctx); err != nil {
		return err
	}
	if open > 0 || counts["early"] != 0 || counts["flaky"] != 2 {
		return fmt.Errorf("%d orders are missing, redelivery counts %v, want none missing, and counts of 0 for early "+
			"and 2 for flaky", open, counts)
	}
	fmt.Println("\nOK: a failure counts as an attempt, a snooze does not.")
	return nil
}

func publish(client pulsar.Client, topic string) error {
	producer, err := client.CreateProducer(pulsar.ProducerOptions{Topic: topic, DisableBatching: true})
	if err != nil {
		return err
	}
	defer producer.Close()
	for _, name := range []string{"early", "flaky"} {
		if _, err := producer.Send(context.Background(), &pulsar.ProducerMessage{Payload: []byte(name)}); err != nil {
			return err
		}
	}
	return nil
}
