package otelredelivery_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"log/slog"
	"time"

	"github.com/apache/pulsar-client-go/pulsar"
	plog "github.com/apache/pulsar-client-go/pulsar/log"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	"github.com/pulsar-redelivery/redelivery"
	otelredelivery "github.com/pulsar-redelivery/redelivery/otel"
	"github.com/pulsar-redelivery/redelivery/pulsartest"
	"github.com/pulsar-redelivery/redelivery/worker"
)

// Each attempt is a span. Without options, Telemetry uses OpenTelemetry's global providers; this example has a provider
// that keeps spans in memory.
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

	spans := tracetest.NewInMemoryExporter()
	telemetry, err := otelredelivery.New(otelredelivery.WithTracerProvider(sdktrace.NewTracerProvider(sdktrace.WithSyncer(spans))))
	if err != nil {
		log.Fatal(err)
	}
	consumer, err := redelivery.Subscribe(client,
		pulsar.ConsumerOptions{Topic: "orders", SubscriptionName: "billing", Type: pulsar.Shared},
		redelivery.WithNackRedeliveryDelay(10*time.Millisecond), redelivery.WithLogger(quiet), telemetry.Observe())
	if err != nil {
		log.Fatal(err)
	}
	defer consumer.Close()
	ctx, stop := context.WithCancel(context.Background())
	w, err := worker.New(consumer, func(_ context.Context, msg pulsar.Message) error {
		if msg.RedeliveryCount() == 0 {
			return errors.New("the machine is cold")
		}
		stop()
		return nil
	}, worker.WithLogger(quiet), worker.WithMiddleware(telemetry.Middleware()))
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
	for _, span := range spans.GetSpans() {
		fmt.Println(span.Name, span.Status.Code, span.Status.Description)
	}

	// Output:
	// process persistent://public/default/orders Error the machine is cold
	// process persistent://public/default/orders Unset
}
