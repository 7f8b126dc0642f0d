// Worker is a bar: orders come as JSON, a handler serves them, and the error that it returns decides what happens to
// the order. At Ctrl-C or SIGTERM the program finishes the orders that it has begun; the next run with the same -topic
// handles the rest.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"log"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/apache/pulsar-client-go/pulsar"

	"github.com/pulsar-redelivery/redelivery"
	"github.com/pulsar-redelivery/redelivery/backoff"
	"github.com/pulsar-redelivery/redelivery/examples/internal/demo"
	"github.com/pulsar-redelivery/redelivery/worker"
)

var (
	topic  = flag.String("topic", demo.Topic("worker"), "`topic` of the orders")
	guests = flag.Int("orders", 12,
		"publish this `number` of orders, and end after them; 0 publishes none, and runs until Ctrl-C")
)

type order struct {
	ID    int    `json:"id"`
	Drink string `json:"drink"`
}

// serve is the handler. It serves an order.
func serve(ctx context.Context, msg pulsar.Message) error {
	var o order
	if err := json.Unmarshal(msg.Payload(), &o); err != nil {
		return worker.Permanent(err) // a dead letter, since it can never be parsed
	}
	switch first := msg.RedeliveryCount() == 0; {
	case o.Drink == "tea" && first:
		return errors.New("spilled it") // comes back after 200 ms, then 400 ms …
	case o.Drink == "coffee" && first:
		return worker.RetryAfter(time.Second, errors.New("the machine cleans itself"))
	case o.Drink == "punch": // takes three ack timeouts, but the Worker renews them
		select {
		case <-time.After(1500 * time.Millisecond):
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	fmt.Printf("served %d: %s\n", o.ID, o.Drink)
	return nil
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, stop); err != nil {
		log.Fatal(err)
	}
}

func run(ctx context.Context, stop func()) error {
	client, closeClient, err := demo.Connect()
	if err != nil {
		return err
	}
	defer closeClient()
	consumer, err := redelivery.Subscribe(client, pulsar.ConsumerOptions{
		Topic: *topic, SubscriptionName: "bar", Type: pulsar.Shared,
		DLQ: &pulsar.DLQPolicy{MaxDeliveries: 5, InitialSubscriptionName: "manager"},
	},
		redelivery.WithNackRedeliveryBackoff(backoff.Exponential{Min: 200 * time.Millisecond, Max: time.Minute}),
		redelivery.WithAckTimeout(500*time.Millisecond))
	if err != nil {
		return err
	}
	defer consumer.Close()
	w, err := worker.New(consumer, serve, worker.WithConcurrency(2), worker.WithTimeout(10*time.Second))
	if err != nil {
		return err
	}
	if *guests > 0 {
		if err := publish(ctx, client); err != nil {
			return err
		}
		go func() {
			for stats := w.Stats(); stats.Succeeded+stats.Permanent < uint64(*guests); stats = w.Stats() {
				time.Sleep(10 * time.Millisecond)
			}
			stop()
		}()
	}
	return w.Run(ctx)
}

// unreadable is the id of an order that is not JSON.
const unreadable = 4

// publish publishes the orders of the guests.
func publish(ctx context.Context, client pulsar.Client) error {
	producer, err := client.CreateProducer(pulsar.ProducerOptions{Topic: *topic})
	if err != nil {
		return err
	}
	defer producer.Close()
	for id := range *guests {
		payload := fmt.Sprintf(`{"id": %d, "drink": %q}`, id, []string{"water", "tea", "coffee", "punch"}[id%4])
		if id == unreadable {
			payload = "~~~"
		}
		if _, err := producer.Send(ctx, &pulsar.ProducerMessage{Payload: []byte(payload)}); err != nil {
			return err
		}
	}
	return nil
}
