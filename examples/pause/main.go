// Pause plays the same outage twice: a database is down while orders arrive. With nacks alone, the orders use up their
// deliveries and become dead letters. With WithPauseOnFailure the Worker tries one order at a time until the database
// is back.
package main

import (
	"context"
	"errors"
	"fmt"
	"log"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/apache/pulsar-client-go/pulsar"

	"github.com/pulsar-redelivery/redelivery"
	"github.com/pulsar-redelivery/redelivery/backoff"
	"github.com/pulsar-redelivery/redelivery/examples/internal/demo"
	"github.com/pulsar-redelivery/redelivery/worker"
)

const orders, every, outage = 200, 10 * time.Millisecond, 2 * time.Second

var quiet = slog.New(slog.DiscardHandler)

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
	fmt.Printf("%d orders, one every %v; the database is down for the first %v. The fourth failure of an order makes "+
		"a dead letter.\n\n",
		orders, every, outage)
	fmt.Println("               calls in the outage    served    dead letters    done after")
	if _, err := play(client, "nacks alone"); err != nil {
		return err
	}
	dead, err := play(client, "with a pause",
		worker.WithPauseOnFailure(10, 0.9, backoff.Exponential{Min: 100 * time.Millisecond, Max: time.Second}))
	if err != nil {
		return err
	}
	if dead > 0 {
		return fmt.Errorf("%d dead letters in spite of the pause", dead)
	}
	fmt.Println("\nOK: with the pause the outage made no dead letter.")
	return nil
}

// play simulates an outage, prints how many orders were served and how many became dead letters, and returns the number
// of dead letters.
func play(client pulsar.Client, name string, options ...worker.Option) (dead uint64, err error) {
	topic := demo.Topic("pause")
	consumer, err := redelivery.Subscribe(client,
		pulsar.ConsumerOptions{Topic: topic, SubscriptionName: "billing", Type: pulsar.Shared},
		redelivery.WithLogger(quiet),
		redelivery.WithNackRedeliveryBackoff(backoff.Exponential{Min: 200 * time.Millisecond, Max: time.Second}),
		redelivery.WithDeadLetterPolicy(redelivery.DeadLetterPolicy{MaxDeliveries: 4,
			InitialSubscriptionName: "inspect"}),
		redelivery.WithObserver(redelivery.Observer{Settled: func(e redelivery.Settled) {
			if e.Outcome == redelivery.DeadLettered && e.Err == nil {
				atomic.AddUint64(&dead, 1)
			}
		}}))
	if err != nil {
		return 0, err
	}
	defer consumer.Close()
	began, failedCalls := time.Now(), atomic.Int64{}
	charge := func(context.Context, pulsar.Message) error {
		if time.Since(began) < outage {
			failedCalls.Add(1)
			return errors.New("the database is down")
		}
		return nil
	}
	w, err := worker.New(consumer, charge, append(options, worker.WithConcurrency(4), worker.WithLogger(quiet))...)
	if err != nil {
		return 0, err
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	failed := make(chan error, 1)
	go func() {
		failed <- publish(ctx, client, topic)
		for ctx.Err() == nil && w.Stats().Succeeded+atomic.LoadUint64(&dead) < orders {
			time.Sleep(10 * time.Millisecond)
		}
		cancel()
	}()
	if err := errors.Join(w.Run(ctx), <-failed); err != nil {
		return 0, err
	}
	fmt.Printf("%-14s %19d %9d %15d %13s\n", name, failedCalls.Load(), w.Stats().Succeeded, dead,
		time.Since(began).Round(100*time.Millisecond))
	return dead, nil
}

func publish(ctx context.Context, client pulsar.Client, topic string) error {
	producer, err := client.CreateProducer(pulsar.ProducerOptions{Topic: topic, DisableBatching: true})
	if err != nil {
		return err
	}
	defer producer.Close()
	for id := range orders {
		if _, err := producer.Send(ctx, &pulsar.ProducerMessage{Payload: fmt.Append(nil, "order ", id)}); err != nil {
			return err
		}
		time.Sleep(every)
	}
	return nil
}
