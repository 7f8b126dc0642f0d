package deadletter_test

import (
	"context"
	"fmt"
	"io"
	"log"
	"log/slog"

	"github.com/apache/pulsar-client-go/pulsar"
	plog "github.com/apache/pulsar-client-go/pulsar/log"

	"github.com/pulsar-redelivery/redelivery/deadletter"
	"github.com/pulsar-redelivery/redelivery/pulsartest"
)

// Two letters died because a service was down. The service is up again.
func Example() {
	broker, err := pulsartest.Start()
	if err != nil {
		log.Fatal(err)
	}
	defer broker.Close()
	quiet := plog.NewLoggerWithSlog(slog.New(slog.NewTextHandler(io.Discard, nil)))
	client, err := pulsar.NewClient(pulsar.ClientOptions{URL: broker.URL(), Logger: quiet})
	if err != nil {
		log.Fatal(err)
	}
	defer client.Close()
	if err := die(client, "orders", "billing", "order 17: connection refused",
		"order 18: connection refused"); err != nil {
		log.Fatal(err)
	}

	ctx := context.Background()
	letters, err := deadletter.Open(client, deadletter.Options{
		Topic: "orders-billing-DLQ",
		Admin: deadletter.Admin{URL: broker.AdminURL()},
	})
	if err != nil {
		log.Fatal(err)
	}
	groups, err := letters.Groups(ctx, deadletter.Filter{})
	if err != nil {
		log.Fatal(err)
	}
	for _, g := range groups {
		fmt.Println(g.Count, g.Reason)
	}
	report, err := letters.Replay(ctx,
		deadletter.ReplayOptions{Filter: deadletter.Filter{Groups: []string{groups[0].ID}}})
	if err != nil {
		log.Fatal(err)
	}
	for _, target := range report.Targets {
		fmt.Println(target.Count, target.Topic)
	}

	// Output:
	// 2 order <n>: connection refused
	// 2 persistent://public/default/orders-billing-RETRY
}

// die publishes dead letters with these reasons, and creates the subscription's retry topic.
func die(client pulsar.Client, topic, subscription string, reasons ...string) error {
	c, err := client.Subscribe(pulsar.ConsumerOptions{Topic: topic + "-" + subscription + "-RETRY",
		SubscriptionName: subscription})
	if err != nil {
		return err
	}
	c.Close()
	p, err := client.CreateProducer(pulsar.ProducerOptions{Topic: topic + "-" + subscription + "-DLQ"})
	if err != nil {
		return err
	}
	defer p.Close()
	for _, reason := range reasons {
		m := &pulsar.ProducerMessage{Payload: []byte("{}"), Properties: map[string]string{"EXCEPTION_MESSAGE": reason}}
		if _, err := p.Send(context.Background(), m); err != nil {
			return err
		}
	}
	return nil
}
