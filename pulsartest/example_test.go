package pulsartest_test

import (
	"context"
	"fmt"
	"log"
	"log/slog"
	"time"

	"github.com/apache/pulsar-client-go/pulsar"
	plog "github.com/apache/pulsar-client-go/pulsar/log"

	"github.com/pulsar-redelivery/redelivery/pulsartest"
)

func ExampleStart() {
	broker, err := pulsartest.Start()
	if err != nil {
		log.Fatal(err)
	}
	defer broker.Close()
	client, err := pulsar.NewClient(pulsar.ClientOptions{
		URL:    broker.URL(),
		Logger: plog.NewLoggerWithSlog(slog.New(slog.DiscardHandler)),
	})
	if err != nil {
		log.Fatal(err)
	}
	defer client.Close()
	consumer, err := client.Subscribe(pulsar.ConsumerOptions{Topic: "orders", SubscriptionName: "billing",
		Type: pulsar.Shared})
	if err != nil {
		log.Fatal(err)
	}
	defer consumer.Close()
	producer, err := client.CreateProducer(pulsar.ProducerOptions{Topic: "orders"})
	if err != nil {
		log.Fatal(err)
	}
	defer producer.Close()

	if _, err := producer.Send(context.Background(),
		&pulsar.ProducerMessage{Payload: []byte("one coffee")}); err != nil {
		log.Fatal(err)
	}
	if _, err := consumer.Receive(context.Background()); err != nil {
		log.Fatal(err)
	}
	fmt.Println("unacknowledged:", broker.Subscription("orders", "billing").Unacked)

	broker.DropConnections() // the client reconnects, and the message comes again
	msg, err := consumer.Receive(context.Background())
	if err != nil {
		log.Fatal(err)
	}
	fmt.Printf("again: %s\n", msg.Payload())
	// Output:
	// unacknowledged: 1
	// again: one coffee
}

func ExampleServer_Inject() {
	broker, err := pulsartest.Start()
	if err != nil {
		log.Fatal(err)
	}
	defer broker.Close()
	client, err := pulsar.NewClient(pulsar.ClientOptions{
		URL:    broker.URL(),
		Logger: plog.NewLoggerWithSlog(slog.New(slog.DiscardHandler)),
	})
	if err != nil {
		log.Fatal(err)
	}
	defer client.Close()
	producer, err := client.CreateProducer(pulsar.ProducerOptions{Topic: "orders", SendTimeout: 50 * time.Millisecond})
	if err != nil {
		log.Fatal(err)
	}
	defer producer.Close()

	broker.Inject("SEND", "orders", 1, pulsartest.Drop)
	_, err = producer.Send(context.Background(), &pulsar.ProducerMessage{Payload: []byte("one coffee")})
	fmt.Println(err)
	fmt.Println("stored:", len(broker.Messages("orders")))
	// Output:
	// message send timeout: TimeoutError
	// stored: 0
}
