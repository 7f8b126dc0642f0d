package metrics_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"net/http/httptest"
	"strings"
	"time"

	"github.com/apache/pulsar-client-go/pulsar"
	plog "github.com/apache/pulsar-client-go/pulsar/log"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/pulsar-redelivery/redelivery"
	"github.com/pulsar-redelivery/redelivery/metrics"
	"github.com/pulsar-redelivery/redelivery/pulsartest"
	"github.com/pulsar-redelivery/redelivery/worker"
)

// One Metrics serves all Consumers and Workers of the process. A service would serve registry on /metrics; this example
// prints one of the counters.
func Example() {
	broker, err := pulsartest.Start()
	if err != nil {
		log.Fatal(err)
	}
	defer broker.Close()
	client, err := pulsar.NewClient(pulsar.ClientOptions{URL: broker.URL(), Logger: plog.NewLoggerWithSlog(silent)})
	if err != nil {
		log.Fatal(err)
	}
	defer client.Close()

	registry := prometheus.NewRegistry() // prometheus.DefaultRegisterer in a service
	m, err := metrics.New(registry)
	if err != nil {
		log.Fatal(err)
	}
	consumer, err := redelivery.Subscribe(client,
		pulsar.ConsumerOptions{Topic: "orders", SubscriptionName: "billing", Type: pulsar.Shared},
		redelivery.WithNackRedeliveryDelay(10*time.Millisecond), redelivery.WithLogger(silent), m.Observe())
	if err != nil {
		log.Fatal(err)
	}
	defer consumer.Close()
	ctx, stop := context.WithCancel(context.Background())
	w, err := worker.New(consumer, func(_ context.Context, msg pulsar.Message) error {
		if msg.RedeliveryCount() < 2 {
			return errors.New("the machine is cold")
		}
		stop()
		return nil
	}, worker.WithLogger(silent), m.ObserveWorker())
	if err != nil {
		log.Fatal(err)
	}
	producer, err := client.CreateProducer(pulsar.ProducerOptions{Topic: "orders"})
	if err != nil {
		log.Fatal(err)
	}
	defer producer.Close()
	if _, err := producer.Send(ctx, &pulsar.ProducerMessage{Payload: []byte("one coffee")}); err != nil {
		log.Fatal(err)
	}
	if err := w.Run(ctx); err != nil {
		log.Fatal(err)
	}

	page := httptest.NewRecorder()
	promhttp.HandlerFor(registry, promhttp.HandlerOpts{}).ServeHTTP(page, httptest.NewRequest("GET", "/metrics", nil))
	for line := range strings.Lines(page.Body.String()) {
		if strings.HasPrefix(line, "redelivery_redelivered_total") {
			fmt.Print(line)
		}
	}

	// Output:
	// redelivery_redelivered_total{cause="nack",subscription="billing"} 2
	// redelivery_redelivered_total{cause="reconnect",subscription="billing"} 0
	// redelivery_redelivered_total{cause="retry_topic",subscription="billing"} 0
	// redelivery_redelivered_total{cause="timeout",subscription="billing"} 0
}
