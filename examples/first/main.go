// First is the README's program. It handles the messages of a topic. A message that fails comes back, later each time.
package main

import (
	"context"
	"log"
	"log/slog"
	"time"

	"github.com/apache/pulsar-client-go/pulsar"
	plog "github.com/apache/pulsar-client-go/pulsar/log"

	"github.com/pulsar-redelivery/redelivery"
	"github.com/pulsar-redelivery/redelivery/backoff"
	"github.com/pulsar-redelivery/redelivery/worker"
)

func main() {
	client, err := pulsar.NewClient(pulsar.ClientOptions{
		URL:    "pulsar://localhost:6650",
		Logger: plog.NewLoggerWithSlog(slog.Default()), // one log
	})
	if err != nil {
		log.Fatal(err)
	}
	consumer, err := redelivery.Subscribe(client,
		pulsar.ConsumerOptions{Topic: "orders", SubscriptionName: "billing", Type: pulsar.Shared},
		redelivery.WithNackRedeliveryBackoff(
			backoff.Exponential{Min: time.Second, Max: 10 * time.Minute}),
		redelivery.WithDeadLetterPolicy(redelivery.DeadLetterPolicy{
			MaxDeliveries: 12, InitialSubscriptionName: "inspect"}))
	if err != nil {
		log.Fatal(err)
	}
	w, err := worker.New(consumer, func(ctx context.Context, msg pulsar.Message) error {
		log.Printf("order %s, redelivery %d", msg.Payload(), msg.RedeliveryCount())
		// nil acknowledges the message. After an error it comes back in 1s, 2s, 4s …
		// The twelfth error makes a dead letter.
		return nil
	})
	if err != nil {
		log.Fatal(err)
	}
	log.Fatal(w.Run(context.Background()))
}
