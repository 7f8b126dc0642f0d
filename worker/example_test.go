package worker_test

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log"
	"log/slog"
	"net/http"
	"strconv"
	"time"

	"github.com/apache/pulsar-client-go/pulsar"
	plog "github.com/apache/pulsar-client-go/pulsar/log"

	"github.com/pulsar-redelivery/redelivery"
	"github.com/pulsar-redelivery/redelivery/backoff"
	"github.com/pulsar-redelivery/redelivery/pulsartest"
	"github.com/pulsar-redelivery/redelivery/worker"
)

// withOrders calls f with a consumer of a topic that has some messages, which gives up after three deliveries.
func withOrders(payloads []string, f func(*redelivery.Consumer, *pulsartest.Server)) {
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
	consumer, err := redelivery.Subscribe(client, pulsar.ConsumerOptions{Topic: "orders", SubscriptionName: "billing",
		Type: pulsar.Shared, DLQ: &pulsar.DLQPolicy{MaxDeliveries: 3}},
		redelivery.WithNackRedeliveryBackoff(backoff.Exponential{Min: 10 * time.Millisecond, Max: time.Second}),
		redelivery.WithLogger(quiet))
	if err != nil {
		log.Fatal(err)
	}
	defer consumer.Close()
	producer, err := client.CreateProducer(pulsar.ProducerOptions{Topic: "orders", DisableBatching: true})
	if err != nil {
		log.Fatal(err)
	}
	defer producer.Close()
	for _, payload := range payloads {
		if _, err := producer.Send(context.Background(), &pulsar.ProducerMessage{Payload: []byte(payload)}); err != nil {
			log.Fatal(err)
		}
	}
	f(consumer, broker)
}

func ExampleNew() {
	withOrders([]string{"tea", "nonsense", "coffee"}, func(consumer *redelivery.Consumer, broker *pulsartest.Server) {
		ctx, cancel := context.WithCancel(context.Background()) // a service has signal.NotifyContext here
		w, err := worker.New(consumer, func(_ context.Context, msg pulsar.Message) error {
			order := string(msg.Payload())
			fmt.Println(order, msg.RedeliveryCount())
			switch {
			case order == "nonsense":
				return worker.Permanent(errors.New("no such drink"))
			case order == "coffee" && msg.RedeliveryCount() == 0:
				return errors.New("the machine is cold") // comes back after 10 ms
			case order == "coffee":
				cancel()
			}
			return nil
		}, worker.WithConcurrency(1), worker.WithTimeout(time.Minute), worker.WithLogger(slog.New(slog.DiscardHandler)))
		if err != nil {
			log.Fatal(err)
		}
		if err := w.Run(ctx); err != nil {
			log.Fatal(err)
		}
		for _, letter := range broker.Messages("orders-billing-DLQ") {
			fmt.Printf("dead: %s, %s\n", letter.Payload, letter.Properties["EXCEPTION_MESSAGE"])
		}
		fmt.Printf("%+v\n", w.State())
	})
	// Output:
	// tea 0
	// nonsense 0
	// coffee 0
	// coffee 1
	// dead: nonsense, no such drink
	// {Paused:false InFlight:0 Stuck:0 Succeeded:2 Failed:1 Permanent:1 Panics:0 Unsettled:0 Left:0}
}

// statusError is an answer of an HTTP server that is no success.
type statusError struct{ *http.Response }

func (e statusError) Error() string { return e.Status }

// classifyHTTP says of which answers another request is of use, and when.
func classifyHTTP(err error) error {
	var answer statusError
	if !errors.As(err, &answer) {
		return err // of the network: the Consumer's policy decides
	}
	switch code := answer.StatusCode; {
	case code == http.StatusTooManyRequests, code == http.StatusServiceUnavailable:
		seconds, _ := strconv.Atoi(answer.Header.Get("Retry-After"))
		return worker.RetryAfter(time.Duration(cmp.Or(seconds, 5))*time.Second, err)
	case code >= 400 && code < 500:
		return worker.Permanent(err)
	}
	return err
}

// One place decides what the answers of an HTTP service mean for messages, and handlers return errors as they come.
func ExampleWithClassifier() {
	charge := func(ctx context.Context, msg pulsar.Message) error {
		request, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://billing/charges", nil)
		if err != nil {
			return err
		}
		answer, err := http.DefaultClient.Do(request)
		if err != nil {
			return err
		}
		defer answer.Body.Close()
		if answer.StatusCode >= 300 {
			return fmt.Errorf("charging: %w", statusError{answer})
		}
		return nil
	}
	run := func(ctx context.Context, consumer *redelivery.Consumer) error {
		w, err := worker.New(consumer, charge, worker.WithClassifier(classifyHTTP))
		if err != nil {
			return err
		}
		return w.Run(ctx)
	}
	_ = run
}
