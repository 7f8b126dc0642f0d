// Quickstart publishes messages of several kinds, and fails on some of them a few times. It shows when the policy
// planned each redelivery, and when the message came back.
package main

import (
	"context"
	"flag"
	"fmt"
	"log"
	"slices"
	"time"

	"github.com/apache/pulsar-client-go/pulsar"

	"github.com/pulsar-redelivery/redelivery"
	"github.com/pulsar-redelivery/redelivery/backoff"
	"github.com/pulsar-redelivery/redelivery/examples/internal/demo"
)

var policy = backoff.Exponential{Min: 200 * time.Millisecond, Max: 2 * time.Second, Multiplier: 2}

const intro = `The policy waits 200 ms after the first failure of a message and doubles the delay after each one, up to 2 s.
Eight messages are published; a handler fails on some of them:

  batch 1 … 4   one batch at the broker: 2 fails once, 3 three times, 1 and 4 never. The failed ones come back alone.
  single        fails twice
  keyed         has a key; fails four times
  good          never fails
  stubborn      fails five times

A row appears for each delivery. "planned" is the policy's delay, "actual" is the time since the failure.

`

// failures says how often the handler fails on each message. The first four messages are published in one batch.
var failures = []struct {
	name  string
	times uint32
}{{"batch 1", 0}, {"batch 2", 1}, {"batch 3", 3}, {"batch 4", 0}, {"single", 2}, {"keyed", 4}, {"good", 0},
	{"stubborn", 5}}

func main() {
	if err := run(); err != nil {
		log.Fatal(err)
	}
}

func run() error {
	wrap := flag.Bool("wrap", false, "call client.Subscribe and redelivery.Wrap instead of redelivery.Subscribe")
	client, closeClient, err := demo.Connect()
	if err != nil {
		return err
	}
	defer closeClient()
	topic := demo.Topic("quickstart")
	consumer, err := subscribe(client, topic, *wrap)
	if err != nil {
		return err
	}
	defer consumer.Close()
	if err := publish(client, topic); err != nil {
		return err
	}

	fmt.Print(intro)
	due := map[string]time.Time{}    // when the policy wants a message back
	failed := map[string]time.Time{} // when a message was nacked
	var table demo.Table
	for open := len(failures); open > 0; {
		ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
		msg, err := consumer.Receive(ctx)
		cancel()
		if err != nil {
			return fmt.Errorf("%d messages are missing: %w", open, err)
		}
		name, now, n := string(msg.Payload()), time.Now(), consumer.RedeliveryCount(msg)
		table.Row(name, n, failed[name], due[name], now)
		if n < times(name) { // the handler fails
			failed[name], due[name] = now, now.Add(policy.Next(n))
			consumer.Nack(msg)
			continue
		}
		if err := consumer.Ack(msg); err != nil {
			return err
		}
		open--
	}
	return table.Summary()
}

func subscribe(client pulsar.Client, topic string, wrap bool) (*redelivery.Consumer, error) {
	opts := pulsar.ConsumerOptions{Topic: topic, SubscriptionName: "quickstart", Type: pulsar.Shared}
	option := redelivery.WithNackRedeliveryBackoff(policy)
	if !wrap {
		return redelivery.Subscribe(client, opts, option)
	}
	inner, err := client.Subscribe(opts)
	if err != nil {
		return nil, err
	}
	return redelivery.Wrap(inner, option)
}

func publish(client pulsar.Client, topic string) error {
	producer, err := client.CreateProducer(pulsar.ProducerOptions{Topic: topic, BatchingMaxMessages: 4,
		BatchingMaxPublishDelay: time.Minute})
	if err != nil {
		return err
	}
	defer producer.Close()
	for i, m := range failures {
		msg := &pulsar.ProducerMessage{Payload: []byte(m.name)}
		if m.name == "keyed" {
			msg.Key = m.name
		}
		producer.SendAsync(context.Background(), msg, func(_ pulsar.MessageID, _ *pulsar.ProducerMessage, err error) {
			if err != nil {
				log.Printf("publishing: %v", err)
			}
		})
		if i >= 3 { // publish the first four together
			if err := producer.FlushWithCtx(context.Background()); err != nil {
				return err
			}
		}
	}
	return nil
}

func times(name string) uint32 {
	return failures[slices.IndexFunc(failures, func(f struct {
		name  string
		times uint32
	}) bool {
		return f.name == name
	})].times
}
