// Deadletter runs a billing service with old tax rates. Orders that the service cannot bill become dead letters.
// Package deadletter groups the letters by cause. The program fixes one cause, and replays the letters of that cause.
// With the command redelivery dlq you can do the same by hand.
package main

import (
	"context"
	"fmt"
	"log"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/apache/pulsar-client-go/pulsar"

	"github.com/pulsar-redelivery/redelivery"
	"github.com/pulsar-redelivery/redelivery/deadletter"
	"github.com/pulsar-redelivery/redelivery/examples/internal/demo"
	"github.com/pulsar-redelivery/redelivery/worker"
)

const orders = 12

// billing is the service. A third of the orders needs new rates, and a sixth comes from an unknown country.
type billing struct {
	newRates atomic.Bool
	dead     atomic.Uint64
	*worker.Worker
}

func (b *billing) charge(_ context.Context, msg pulsar.Message) error {
	var id int
	if _, err := fmt.Sscanf(string(msg.Payload()), "order %d", &id); err != nil {
		return worker.Permanent(err)
	}
	switch {
	case id%3 == 0 && !b.newRates.Load():
		return fmt.Errorf("order %d: the tax rates are old", id)
	case id%6 == 1:
		return worker.Permanent(fmt.Errorf("order %d: unknown country", id))
	}
	return nil
}

// await waits until this many orders were billed and this many became dead letters, since the program began.
func (b *billing) await(ctx context.Context, what string, billed, dead uint64) error {
	for b.Stats().Succeeded < billed || b.dead.Load() < dead {
		select {
		case <-time.After(10 * time.Millisecond):
		case <-ctx.Done():
			return fmt.Errorf("%d orders billed, %d dead letters, want %d and %d: %w", b.Stats().Succeeded,
				b.dead.Load(), billed, dead, ctx.Err())
		}
	}
	fmt.Printf("%-34s %2d billed, %d became dead letters\n", what, billed, dead)
	return nil
}

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
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	topic, quiet, b := demo.Topic("orders"), slog.New(slog.DiscardHandler), &billing{}
	consumer, err := redelivery.Subscribe(client,
		pulsar.ConsumerOptions{Topic: topic, SubscriptionName: "billing", Type: pulsar.Shared,
			RetryEnable: true}, // replayed letters come through the retry topic
		redelivery.WithLogger(quiet),
		redelivery.WithNackRedeliveryDelay(100*time.Millisecond),
		redelivery.WithDeadLetterPolicy(redelivery.DeadLetterPolicy{MaxDeliveries: 3,
			InitialSubscriptionName: "inspect"}),
		redelivery.WithObserver(redelivery.Observer{Settled: func(e redelivery.Settled) {
			if e.Outcome == redelivery.DeadLettered && e.Err == nil {
				b.dead.Add(1)
			}
		}}))
	if err != nil {
		return err
	}
	defer consumer.Close()
	b.Worker, err = worker.New(consumer, b.charge, worker.WithLogger(quiet))
	if err != nil {
		return err
	}
	working, finish := context.WithCancel(ctx)
	ended := make(chan error, 1)
	go func() { ended <- b.Run(working) }()
	defer func() { finish(); <-ended }() // before the Consumer is closed
	if err := publish(ctx, client, topic); err != nil {
		return err
	}
	if err := b.await(ctx, fmt.Sprint(orders, " orders:"), 6, 6); err != nil {
		return err
	}

	letters, err := deadletter.Open(client, deadletter.Options{Topic: topic + "-billing-DLQ", Subscription: "inspect"})
	if err != nil {
		return err
	}
	groups, err := letters.Groups(ctx, deadletter.Filter{})
	if err != nil {
		return err
	}
	fmt.Println("\nletters   group        cause")
	for _, g := range groups {
		fmt.Printf("%7d   %s   %s\n", g.Count, g.ID, g.Reason)
	}
	fmt.Println()

	b.newRates.Store(true) // the fix is deployed
	report, err := letters.Replay(ctx,
		deadletter.ReplayOptions{Filter: deadletter.Filter{Groups: []string{groups[0].ID}}})
	if err != nil {
		return err
	}
	if err := b.await(ctx, fmt.Sprintf("%d letters replayed, group %s:", report.Done, groups[0].ID), 10,
		6); err != nil {
		return err
	}
	fmt.Println("\nOK: the letters of one cause were billed, the others stay in the dead letter topic.")
	return nil
}

func publish(ctx context.Context, client pulsar.Client, topic string) error {
	producer, err := client.CreateProducer(pulsar.ProducerOptions{Topic: topic})
	if err != nil {
		return err
	}
	defer producer.Close()
	for id := range orders {
		if _, err := producer.Send(ctx, &pulsar.ProducerMessage{Payload: fmt.Append(nil, "order ", id)}); err != nil {
			return err
		}
	}
	return nil
}
