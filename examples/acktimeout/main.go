// Acktimeout shows ack timeouts: a worker hangs on some messages, so that it neither acknowledges nor nacks them. Such
// a message comes back after its ack timeout and the backoff for its redelivery count (PIP-130).
package main

import (
	"context"
	"fmt"
	"log"
	"time"

	"github.com/apache/pulsar-client-go/pulsar"

	"github.com/pulsar-redelivery/redelivery"
	"github.com/pulsar-redelivery/redelivery/backoff"
	"github.com/pulsar-redelivery/redelivery/examples/internal/demo"
)

const timeout = 500 * time.Millisecond

var policy = backoff.Exponential{Min: 100 * time.Millisecond, Max: time.Second, Multiplier: 2}

// hangs is how often the worker hangs on each message.
var hangs = map[string]uint32{"quick": 0, "slow": 1, "slower": 2, "stuck": 4}

func main() {
	if err := run(); err != nil {
		log.Fatal(err)
	}
}

func run() error {
	client, closeClient, err := demo.Connect()
	if err != nil {
		return err
	}
	defer closeClient()
	topic := demo.Topic("acktimeout")
	consumer, err := redelivery.Subscribe(client,
		pulsar.ConsumerOptions{Topic: topic, SubscriptionName: "workers", Type: pulsar.Shared},
		redelivery.WithAckTimeout(timeout), redelivery.WithAckTimeoutRedeliveryBackoff(policy))
	if err != nil {
		return err
	}
	defer consumer.Close()
	producer, err := client.CreateProducer(pulsar.ProducerOptions{Topic: topic})
	if err != nil {
		return err
	}
	defer producer.Close()
	for name := range hangs {
		if _, err := producer.Send(context.Background(), &pulsar.ProducerMessage{Payload: []byte(name)}); err != nil {
			return err
		}
	}

	fmt.Printf("The ack timeout is %v, the backoff 100 ms, 200 ms, 400 ms … The worker hangs on \"slow\" once, on\n"+
		"\"slower\" twice and on \"stuck\" four times. \"planned\" is the timeout plus the backoff.\n\n", timeout)
	received, due := map[string]time.Time{}, map[string]time.Time{}
	var table demo.Table
	for open := len(hangs); open > 0; {
		ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
		msg, err := consumer.Receive(ctx)
		cancel()
		if err != nil {
			return fmt.Errorf("%d messages are missing: %w", open, err)
		}
		name, now, n := string(msg.Payload()), time.Now(), consumer.RedeliveryCount(msg)
		table.Row(name, n, received[name], due[name], now)
		if n < hangs[name] { // the worker restarts the ack timeout a last time, and hangs
			received[name], due[name] = now, now.Add(timeout+policy.Next(n))
			if err := consumer.InProgress(msg); err != nil {
				return err
			}
			continue
		}
		if err := consumer.Ack(msg); err != nil {
			return err
		}
		open--
	}
	return table.Summary()
}
