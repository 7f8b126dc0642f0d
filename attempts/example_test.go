package attempts_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"log/slog"
	"time"

	"github.com/apache/pulsar-client-go/pulsar"
	plog "github.com/apache/pulsar-client-go/pulsar/log"

	"github.com/pulsar-redelivery/redelivery"
	"github.com/pulsar-redelivery/redelivery/attempts"
	"github.com/pulsar-redelivery/redelivery/pulsartest"
)

// A service has failed on a message and has ended. Another program reads from its log which messages failed, and why.
func Example() {
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
	if err := fail(client, errors.New("the machine is cold")); err != nil {
		log.Fatal(err)
	}

	failed, err := attempts.Open(client,
		attempts.Options{Topic: attempts.Topic("orders", "billing"), ReadOnly: true, Logger: quiet})
	if err != nil {
		log.Fatal(err)
	}
	defer failed.Close()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	if err := failed.Ready(ctx); err != nil {
		log.Fatal(err)
	}
	for _, r := range failed.Records() {
		fmt.Println(r.Topic, "delivered", r.Count, "time:", r.Cause)
	}

	// Output: persistent://public/default/orders delivered 1 time: the machine is cold
}

// fail makes a consumer with a log fail on a message.
func fail(client pulsar.Client, reason error) error {
	consumer, err := redelivery.Subscribe(client,
		pulsar.ConsumerOptions{Topic: "orders", SubscriptionName: "billing"},
		redelivery.WithAttemptLog(redelivery.AttemptLog{}), redelivery.WithNackRedeliveryDelay(time.Hour))
	if err != nil {
		return err
	}
	defer consumer.Close() // writes what is not written yet
	producer, err := client.CreateProducer(pulsar.ProducerOptions{Topic: "orders"})
	if err != nil {
		return err
	}
	defer producer.Close()
	ctx := context.Background()
	if _, err := producer.Send(ctx, &pulsar.ProducerMessage{Payload: []byte("one coffee")}); err != nil {
		return err
	}
	msg, err := consumer.Receive(ctx)
	if err != nil {
		return err
	}
	return consumer.NackWithReason(msg, reason)
}
