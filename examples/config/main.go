// Config subscribes with the settings of the file redelivery.yaml in this folder. It fails on a message a few times,
// and shows when the message came back.
package main

import (
	"context"
	_ "embed"
	"fmt"
	"log"
	"time"

	"github.com/apache/pulsar-client-go/pulsar"

	"github.com/pulsar-redelivery/redelivery/config"
	"github.com/pulsar-redelivery/redelivery/examples/internal/demo"
)

//go:embed redelivery.yaml
var file []byte // config.Load reads a file by its path

const name, failures = "billing", 5

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
	settings, err := config.Parse(file)
	if err != nil {
		return err
	}
	topic := demo.Topic("config")
	opts := pulsar.ConsumerOptions{Topic: topic, SubscriptionName: name, Type: pulsar.Shared}
	consumer, err := settings.Subscribe(client, name, opts)
	if err != nil {
		return err
	}
	defer consumer.Close()
	producer, err := client.CreateProducer(pulsar.ProducerOptions{Topic: topic})
	if err != nil {
		return err
	}
	defer producer.Close()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	if _, err := producer.Send(ctx, &pulsar.ProducerMessage{Payload: []byte("invoice")}); err != nil {
		return err
	}

	var table demo.Table
	var nacked, due time.Time
	for {
		msg, err := consumer.Receive(ctx)
		if err != nil {
			return fmt.Errorf("the message is missing: %w", err)
		}
		now, n := time.Now(), consumer.RedeliveryCount(msg)
		table.Row(string(msg.Payload()), n, nacked, due, now)
		if n == failures {
			if err := consumer.Ack(msg); err != nil {
				return err
			}
			return table.Summary()
		}
		nacked, due = now, now.Add(settings.Consumers[name].NackRedeliveryBackoff.Next(n))
		consumer.Nack(msg)
	}
}
