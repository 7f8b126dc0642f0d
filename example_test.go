package redelivery_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"log/slog"
	"os"
	"testing"
	"time"

	"github.com/apache/pulsar-client-go/pulsar"
	plog "github.com/apache/pulsar-client-go/pulsar/log"

	"github.com/pulsar-redelivery/redelivery"
	"github.com/pulsar-redelivery/redelivery/backoff"
	"github.com/pulsar-redelivery/redelivery/internal/logtest"
	"github.com/pulsar-redelivery/redelivery/pulsartest"
)

func TestMain(m *testing.M) { os.Exit(logtest.Quiet{M: m}.Run()) }

var orders = pulsar.ConsumerOptions{Topic: "orders", SubscriptionName: "billing", Type: pulsar.Shared,
	SubscriptionInitialPosition: pulsar.SubscriptionPositionEarliest}

// withOrder calls f with a client of a broker that has one message in topic "orders".
func withOrder(f func(ctx context.Context, client pulsar.Client) error) {
	broker, err := pulsartest.Start(pulsartest.WithExactDelays())
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
	producer, err := client.CreateProducer(pulsar.ProducerOptions{Topic: orders.Topic})
	if err != nil {
		log.Fatal(err)
	}
	defer producer.Close()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	if _, err := producer.Send(ctx, &pulsar.ProducerMessage{Payload: []byte("one coffee")}); err != nil {
		log.Fatal(err)
	}
	if err := f(ctx, client); err != nil {
		log.Fatal(err)
	}
}

func ExampleSubscribe() {
	withOrder(func(ctx context.Context, client pulsar.Client) error {
		consumer, err := redelivery.Subscribe(client, orders,
			redelivery.WithNackRedeliveryBackoff(backoff.Exponential{Min: 20 * time.Millisecond, Max: time.Second}))
		if err != nil {
			return err
		}
		defer consumer.Close()
		for {
			msg, err := consumer.Receive(ctx)
			if err != nil {
				return err
			}
			n := consumer.RedeliveryCount(msg)
			fmt.Printf("%s, redelivered %d times\n", msg.Payload(), n)
			if n == 2 {
				return consumer.Ack(msg)
			}
			consumer.Nack(msg) // comes back after 20 ms, then 40 ms, then 80 ms …
		}
	})
	// Output:
	// one coffee, redelivered 0 times
	// one coffee, redelivered 1 times
	// one coffee, redelivered 2 times
}

func ExampleSubscribeWith() {
	withOrder(func(ctx context.Context, client pulsar.Client) error {
		subscribe := func(opts pulsar.ConsumerOptions) (pulsar.Consumer, error) {
			return client.Subscribe(opts) // in code of somebody else
		}
		consumer, err := redelivery.SubscribeWith(subscribe, orders,
			redelivery.WithNackRedeliveryDelay(20*time.Millisecond))
		if err != nil {
			return err
		}
		defer consumer.Close()
		msg, err := consumer.Receive(ctx)
		if err != nil {
			return err
		}
		consumer.Nack(msg)
		msg, err = consumer.Receive(ctx)
		if err != nil {
			return err
		}
		fmt.Println("redelivered:", consumer.RedeliveryCount(msg))
		return consumer.Ack(msg)
	})
	// Output: redelivered: 1
}

func ExampleWrap() {
	withOrder(func(ctx context.Context, client pulsar.Client) error {
		inner, err := client.Subscribe(orders) // in code of somebody else
		if err != nil {
			return err
		}
		consumer, err := redelivery.Wrap(inner, redelivery.WithNackRedeliveryDelay(20*time.Millisecond),
			redelivery.WithLogger(slog.New(slog.DiscardHandler)))
		if err != nil {
			return err
		}
		defer consumer.Close()
		msg, err := consumer.Receive(ctx)
		if err != nil {
			return err
		}
		consumer.Nack(msg)
		msg, err = consumer.Receive(ctx)
		if err != nil {
			return err
		}
		fmt.Println("redelivered:", consumer.RedeliveryCount(msg))
		return consumer.Ack(msg)
	})
	// Output: redelivered: 1
}

func ExampleConsumer_InProgress() {
	withOrder(func(ctx context.Context, client pulsar.Client) error {
		consumer, err := redelivery.Subscribe(client, orders, redelivery.WithAckTimeout(300*time.Millisecond))
		if err != nil {
			return err
		}
		defer consumer.Close()
		msg, err := consumer.Receive(ctx)
		if err != nil {
			return err
		}
		for range 4 { // work that takes longer than the ack timeout
			time.Sleep(100 * time.Millisecond)
			if err := consumer.InProgress(msg); err != nil {
				return err
			}
		}
		if err := consumer.Ack(msg); err != nil {
			return err
		}
		fmt.Println("redelivered:", consumer.Stats().Redelivered)
		return nil
	})
	// Output: redelivered: 0
}

func ExampleConsumer_ReconsumeLaterNext() {
	withOrder(func(ctx context.Context, client pulsar.Client) error {
		consumer, err := redelivery.Subscribe(client, orders,
			redelivery.WithReconsumeBackoff(backoff.DelayLevels{50 * time.Millisecond, 100 * time.Millisecond,
				time.Second}))
		if err != nil {
			return err
		}
		defer consumer.Close()
		for range 2 {
			msg, err := consumer.Receive(ctx)
			if err != nil {
				return err
			}
			if err := consumer.ReconsumeLaterNext(ctx, msg); err != nil {
				return err
			}
		}
		msg, err := consumer.Receive(ctx)
		if err != nil {
			return err
		}
		fmt.Println("reconsumed", msg.Properties()["RECONSUMETIMES"], "times, the last after",
			msg.Properties()["DELAY_TIME"], "ms")
		return consumer.Ack(msg)
	})
	// Output: reconsumed 2 times, the last after 100 ms
}

func ExampleConsumer_DeadLetter() {
	withOrder(func(ctx context.Context, client pulsar.Client) error {
		opts := orders
		opts.DLQ = &pulsar.DLQPolicy{MaxDeliveries: 5, DeadLetterTopic: "dead-orders", InitialSubscriptionName: "clerk"}
		consumer, err := redelivery.Subscribe(client, opts)
		if err != nil {
			return err
		}
		defer consumer.Close()
		msg, err := consumer.Receive(ctx)
		if err != nil {
			return err
		}
		if err := consumer.DeadLetter(ctx, msg, errors.New("out of coffee")); err != nil {
			return err
		}
		return letter(ctx, client, "dead-orders", "clerk")
	})
	// Output: one coffee: out of coffee
}

func ExampleWithCallback() {
	try(func(ctx context.Context, consumer *redelivery.Consumer, msg pulsar.Message) error {
		done := make(chan error, 1)
		if err := consumer.ReconsumeLaterNext(ctx, msg,
			redelivery.WithCallback(func(err error) { done <- err })); err != nil {
			return err
		}
		fmt.Println("on its way")
		if err := <-done; err != nil {
			consumer.Nack(msg) // it is still the application's
			return err
		}
		fmt.Println("published and acknowledged")
		return nil
	}, redelivery.WithReconsumeBackoff(backoff.Fixed(soon)))
	// Output:
	// on its way
	// published and acknowledged
}
