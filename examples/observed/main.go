// Observed serves /metrics for Prometheus while messages fail in different ways: some once, some always, some by taking
// too long. metrics/deploy has a dashboard and alerts for these metrics.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"log"
	"log/slog"
	"net/http"
	"os"
	"os/signal"
	"time"

	"github.com/apache/pulsar-client-go/pulsar"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/pulsar-redelivery/redelivery"
	"github.com/pulsar-redelivery/redelivery/backoff"
	"github.com/pulsar-redelivery/redelivery/examples/internal/demo"
	"github.com/pulsar-redelivery/redelivery/metrics"
	"github.com/pulsar-redelivery/redelivery/worker"
)

var (
	listen = flag.String("listen", "localhost:2112", "`address` of /metrics")
	last   = flag.Duration("for", 0, "end after this `duration`; 0 means at Ctrl-C")
	topic  = flag.String("topic", demo.Topic("observed"), "`topic` of the orders")
)

// serve is the handler. The payload of an order says how the order fails.
func serve(_ context.Context, msg pulsar.Message) error {
	first := msg.RedeliveryCount() == 0
	switch kind := string(msg.Payload()); {
	case kind == "flaky" && first:
		return errors.New("not now")
	case kind == "bad":
		return errors.New("fails every time")
	case kind == "broken":
		return worker.Permanent(errors.New("does not parse"))
	case kind == "busy" && first:
		return worker.RetryAfter(1500*time.Millisecond, errors.New("try later")) // through the retry topic
	case kind == "slow" && first:
		time.Sleep(400 * time.Millisecond) // longer than the ack timeout
	}
	time.Sleep(5 * time.Millisecond)
	return nil
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx); err != nil {
		log.Fatal(err)
	}
}

func run(ctx context.Context) error {
	client, closeClient, err := demo.Connect()
	if err != nil {
		return err
	}
	defer closeClient()
	if *last > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, *last)
		defer cancel()
	}

	registry := prometheus.NewRegistry()
	m, err := metrics.New(registry)
	if err != nil {
		return err
	}
	http.Handle("/metrics", promhttp.HandlerFor(registry, promhttp.HandlerOpts{}))
	go func() { log.Println(http.ListenAndServe(*listen, nil)) }()
	fmt.Printf("metrics are at http://%s/metrics\n", *listen)

	consumer, err := redelivery.Subscribe(client, pulsar.ConsumerOptions{
		Topic: *topic, SubscriptionName: "shop", Type: pulsar.Shared, RetryEnable: true,
		DLQ: &pulsar.DLQPolicy{MaxDeliveries: 4, InitialSubscriptionName: "inspect"},
	},
		m.Observe(),
		redelivery.WithLogger(slog.New(slog.DiscardHandler)),
		redelivery.WithNackRedeliveryBackoff(backoff.WithJitter(backoff.Exponential{Min: 200 * time.Millisecond,
			Max: time.Minute}, 0.2)),
		redelivery.WithNackRetryTopic(time.Second),
		redelivery.WithAttemptLog(redelivery.AttemptLog{}),
		redelivery.WithAckTimeout(300*time.Millisecond))
	if err != nil {
		return err
	}
	defer consumer.Close()
	w, err := worker.New(consumer, serve, m.ObserveWorker(), worker.WithConcurrency(4),
		worker.WithLogger(slog.New(slog.DiscardHandler)))
	if err != nil {
		return err
	}
	go func() {
		if err := publish(ctx, client); err != nil {
			log.Println(err)
		}
	}()
	return w.Run(ctx)
}

// publish publishes fifty orders a second. One order in five fails.
func publish(ctx context.Context, client pulsar.Client) error {
	producer, err := client.CreateProducer(pulsar.ProducerOptions{Topic: *topic})
	if err != nil {
		return err
	}
	defer producer.Close()
	for n := 0; ctx.Err() == nil; n++ {
		kind := map[int]string{0: "flaky", 5: "flaky", 10: "flaky", 15: "flaky", 20: "bad", 25: "busy", 30: "slow",
			35: "broken"}[n%40]
		producer.SendAsync(ctx, &pulsar.ProducerMessage{Payload: []byte(kind)}, nil)
		time.Sleep(20 * time.Millisecond)
	}
	return nil
}
