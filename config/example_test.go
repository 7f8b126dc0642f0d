package config_test

import (
	"context"
	"fmt"
	"log"
	"time"

	"github.com/apache/pulsar-client-go/pulsar"

	"github.com/pulsar-redelivery/redelivery"
	"github.com/pulsar-redelivery/redelivery/backoff"
	"github.com/pulsar-redelivery/redelivery/config"
	"github.com/pulsar-redelivery/redelivery/worker"
)

// The client and the file of a program. A program would read its file with config.Load.
var (
	client  pulsar.Client
	orders  = pulsar.ConsumerOptions{Topic: "orders", SubscriptionName: "billing", Type: pulsar.Shared}
	file, _ = config.Parse([]byte(`
policies: {gentle: {type: exponential, min: 1s, max: 10m}}
consumers: {billing: {nackRedeliveryBackoff: gentle, maxDeliveries: 5, initialSubscriptionName: inspect}}
workers:
  billing: {concurrency: 8, timeout: 30s}
  reports: {batchMaxMessages: 100, batchMaxWait: 1s}
`))
)

func charge(context.Context, pulsar.Message) error { return nil }

func ExampleLoad() {
	file, err := config.Load("testdata/redelivery.yaml")
	if err != nil {
		log.Fatal(err)
	}
	billing := file.Consumers["billing"]
	fmt.Println(billing.NackRedeliveryBackoff.Next(3), billing.MaxDeliveries)
	// Output: 8s 5
}

func ExampleConfig_Subscribe() {
	consumer, err := file.Subscribe(client, "billing", orders)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer consumer.Close()
	// Output: redelivery: client is nil, want a pulsar.Client
}

// A program adds options of its own.
func ExampleConfig_ConsumerOptions() {
	opts, options, err := file.ConsumerOptions("billing", orders)
	if err != nil {
		log.Fatal(err)
	}
	options = append(options, redelivery.WithObserver(redelivery.Observer{Settled: func(s redelivery.Settled) { fmt.Println(s.Outcome) }}))
	consumer, err := redelivery.Subscribe(client, opts, options...)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer consumer.Close()
	// Output: redelivery: client is nil, want a pulsar.Client
}

func ExampleConfig_Options() {
	options, err := file.Options("billing") // nackRedeliveryBackoff, and the settings of dead letters
	fmt.Println(len(options), err)
	_, err = file.Options("shipping")
	fmt.Println(err)
	// Output:
	// 2 <nil>
	// config: consumer is "shipping", want one of the file's (billing)
}

func ExampleConfig_NewWorker() {
	run := func(ctx context.Context, consumer *redelivery.Consumer) error {
		w, err := file.NewWorker("billing", consumer, charge, worker.WithMiddleware(worker.Logging(nil)))
		if err != nil {
			return err
		}
		return w.Run(ctx)
	}
	fmt.Println(run(context.Background(), nil) != nil)
	// Output: true
}

func ExampleConfig_NewBatchWorker() {
	run := func(ctx context.Context, consumer *redelivery.Consumer) error {
		w, err := file.NewBatchWorker("reports", consumer, func(context.Context, []pulsar.Message) error { return nil })
		if err != nil {
			return err
		}
		return w.Run(ctx)
	}
	fmt.Println(run(context.Background(), nil) != nil)
	// Output: true
}

func ExampleParse() {
	c, err := config.Parse([]byte(`
policies:
  gentle: {type: exponential, min: 1s, max: 60s}
consumers:
  billing: {nackRedeliveryBackoff: gentle, ackTimeout: 10s}
`))
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(c.Consumers["billing"].AckTimeout)

	_, err = config.Parse([]byte(`
policies:
  gentle: {type: exponential, min: 1}
consumers:
  billing: {nackRedeliveryBackoff: gentel}
`))
	fmt.Println(err)
	// Output:
	// 10s
	// line 3: policies.gentle.min is 1, want a duration with its unit, such as "30s"
	// line 5: consumers.billing.nackRedeliveryBackoff is "gentel", want the name of a policy (gentle)
}

func ExampleNewPolicy() {
	linear := config.NewPolicy("linear", func(params map[string]any) (backoff.RedeliveryBackoff, error) {
		text, _ := params["step"].(string)
		step, err := time.ParseDuration(text)
		if err != nil {
			return nil, fmt.Errorf("step: %w", err)
		}
		return backoff.Func(func(n uint32) time.Duration { return step * time.Duration(min(n, 9)+1) }), nil
	})
	c, err := config.Parse([]byte("policies: {slow: {type: linear, step: 2s}}"), linear)
	if err != nil {
		fmt.Println(err)
		return
	}
	for n, d := range backoff.Schedule(c.Policies["slow"], 3) {
		fmt.Println(n, d)
	}
	// Output:
	// 0 2s
	// 1 4s
	// 2 6s
}
