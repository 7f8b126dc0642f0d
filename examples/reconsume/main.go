// Reconsume fails on a message again and again and climbs the ladder of delay levels through a retry topic, to the dead
// letter topic in the end (PIP-94). On a real broker such delays outlive the process.
package main

import (
	"context"
	"errors"
	"fmt"
	"log"
	"time"

	"github.com/apache/pulsar-client-go/pulsar"

	"github.com/pulsar-redelivery/redelivery"
	"github.com/pulsar-redelivery/redelivery/backoff"
	"github.com/pulsar-redelivery/redelivery/examples/internal/demo"
)

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
	topic := demo.Topic("reconsume")
	levels, err := backoff.ParseDelayLevels("1s 2s 3s")
	if err != nil {
		return err
	}
	consumer, err := redelivery.Subscribe(client, pulsar.ConsumerOptions{Topic: topic, SubscriptionName: "workers",
		Type: pulsar.Shared, DLQ: &pulsar.DLQPolicy{MaxDeliveries: 4, InitialSubscriptionName: "dead-letters"}},
		redelivery.WithReconsumeBackoff(levels))
	if err != nil {
		return err
	}
	defer consumer.Close()
	producer, err := client.CreateProducer(pulsar.ProducerOptions{Topic: topic})
	if err != nil {
		return err
	}
	defer producer.Close()
	if _, err := producer.Send(context.Background(), &pulsar.ProducerMessage{Payload: []byte("order 1")}); err != nil {
		return err
	}

	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	fmt.Println("delivery   after    RECONSUMETIMES   DELAY_TIME   received from")
	last := time.Now()
	for delivery := 1; delivery <= 5; delivery++ {
		msg, err := consumer.Receive(ctx)
		if err != nil {
			return err
		}
		show(delivery, time.Since(last), msg)
		last = time.Now()
		if err := consumer.ReconsumeLaterNext(ctx, msg); err != nil { // still ours: nack it, or try again
			return err
		}
	}
	return readDeadLetter(ctx, client, topic)
}

func readDeadLetter(ctx context.Context, client pulsar.Client, topic string) error {
	dead, err := client.Subscribe(pulsar.ConsumerOptions{Topic: topic + "-workers-DLQ", SubscriptionName: "dead-letters",
		Type: pulsar.Shared})
	if err != nil {
		return err
	}
	defer dead.Close()
	msg, err := dead.Receive(ctx)
	if err != nil {
		return err
	}
	fmt.Printf("\ndead letter %q: %s, first seen as %s\n", msg.Payload(), msg.Properties()["EXCEPTION_MESSAGE"],
		msg.Properties()["ORIGIN_MESSAGE_ID"])
	if msg.Properties()["RECONSUMETIMES"] != "5" {
		return errors.New("want RECONSUMETIMES 5")
	}
	return dead.Ack(msg)
}

func show(delivery int, after time.Duration, msg pulsar.Message) {
	dash := func(s string) string {
		if s == "" {
			return "-"
		}
		return s
	}
	fmt.Printf("%8d %6.2fs %17s %12s   %s\n", delivery, after.Seconds(), dash(msg.Properties()["RECONSUMETIMES"]),
		dash(msg.Properties()["DELAY_TIME"]), msg.Topic())
}
