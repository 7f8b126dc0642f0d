package reconsume_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"log/slog"
	"time"

	"github.com/apache/pulsar-client-go/pulsar"
	plog "github.com/apache/pulsar-client-go/pulsar/log"

	"github.com/pulsar-redelivery/redelivery/backoff"
	"github.com/pulsar-redelivery/redelivery/pulsartest"
	"github.com/pulsar-redelivery/redelivery/reconsume"
)

// A plain consumer of pulsar-client-go reads a topic and its retry topic. It publishes each message that fails to the
// retry topic. After two retries the message becomes a dead letter.
func Example() {
	broker, err := pulsartest.Start(pulsartest.WithExactDelays())
	if err != nil {
		log.Fatal(err)
	}
	defer broker.Close()
	quiet := plog.NewLoggerWithSlog(slog.New(slog.DiscardHandler))
	client, err := pulsar.NewClient(pulsar.ClientOptions{URL: broker.URL(), Logger: quiet})
	if err != nil {
		log.Fatal(err)
	}
	defer client.Close()

	r, err := reconsume.New(client, reconsume.Options{
		Topic:         "orders",
		Subscription:  "billing",
		MaxDeliveries: 2,
		Backoff:       backoff.DelayLevels{20 * time.Millisecond, 40 * time.Millisecond},
	})
	if err != nil {
		log.Fatal(err)
	}
	defer r.Close()
	consumer, err := client.Subscribe(pulsar.ConsumerOptions{
		Topics:           []string{"orders", r.RetryTopic()},
		SubscriptionName: "billing",
		Type:             pulsar.Shared, // the broker delays on Shared and Key_Shared only
	})
	if err != nil {
		log.Fatal(err)
	}
	defer consumer.Close()
	ctx := context.Background()
	producer, err := client.CreateProducer(pulsar.ProducerOptions{Topic: "orders"})
	if err != nil {
		log.Fatal(err)
	}
	defer producer.Close()
	if _, err := producer.Send(ctx, &pulsar.ProducerMessage{Payload: []byte("one coffee")}); err != nil {
		log.Fatal(err)
	}

	for range 3 {
		msg := <-consumer.Chan() // msg also has the consumer that must acknowledge the message
		fmt.Printf("%s, retry %q\n", msg.Payload(), msg.Properties()["RECONSUMETIMES"])
		if err := r.Later(ctx, msg, reconsume.WithCause(errors.New("the machine is cold"))); err != nil {
			log.Fatal(err) // the message is not acknowledged
		}
	}
	fmt.Println(len(broker.Messages(r.DeadLetterTopic())), "dead letter")

	// Output:
	// one coffee, retry ""
	// one coffee, retry "1"
	// one coffee, retry "2"
	// 1 dead letter
}
