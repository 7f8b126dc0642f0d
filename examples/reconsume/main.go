// Reconsume fails on a message again and again. The message goes through a retry topic with longer and longer delay
// levels, and ends in the dead letter topic (PIP-94). On a real broker such delays outlive the process.
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

const intro = `One message fails five times. Its delay levels are 1s, 2s and 3s; the fourth delay is 3s again. After
four retries (DLQPolicy.MaxDeliveries) the next failure makes it a dead letter. The broker looks for due retries once
a second, so a retry can be up to about a second late.

retry   planned    actual      late   received from
`

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
	fmt.Print(intro)
	var failed, due time.Time // when the previous delivery failed, and when the next one is due
	for n := range 5 {
		msg, err := consumer.Receive(ctx)
		if err != nil {
			return err
		}
		now := time.Now()
		if err := show(n, failed, due, now, msg.Topic()); err != nil {
			return err
		}
		failed, due = now, now.Add(levels.Next(uint32(n)))
		if err := consumer.ReconsumeLaterNext(ctx, msg); err != nil { // msg is not settled: nack it, or try again
			return err
		}
	}
	return readDeadLetter(ctx, client, topic)
}

func readDeadLetter(ctx context.Context, client pulsar.Client, topic string) error {
	dead, err := client.Subscribe(pulsar.ConsumerOptions{Topic: topic + "-workers-DLQ",
		SubscriptionName: "dead-letters",
		Type:             pulsar.Shared})
	if err != nil {
		return err
	}
	defer dead.Close()
	msg, err := dead.Receive(ctx)
	if err != nil {
		return err
	}
	fmt.Printf("\ndead letter %q: %s, first published as %s\n", msg.Payload(), msg.Properties()["EXCEPTION_MESSAGE"],
		msg.Properties()["ORIGIN_MESSAGE_ID"])
	if msg.Properties()["RECONSUMETIMES"] != "5" {
		return errors.New("want RECONSUMETIMES 5")
	}
	fmt.Println("OK: four retries, none before its time, and then a dead letter.")
	return dead.Ack(msg)
}

// show prints a delivery: when it was planned, and when it came.
func show(retry int, failed, due, now time.Time, topic string) error {
	if retry == 0 {
		fmt.Printf("%5d %9s %9s %9s   %s\n", retry, "-", "-", "-", topic)
		return nil
	}
	seconds := func(d time.Duration) string { return fmt.Sprintf("%.3fs", d.Seconds()) }
	fmt.Printf("%5d %9s %9s %9s   %s\n", retry, seconds(due.Sub(failed)), seconds(now.Sub(failed)),
		seconds(now.Sub(due)), topic)
	if now.Before(due) {
		return fmt.Errorf("retry %d was early", retry)
	}
	return nil
}
