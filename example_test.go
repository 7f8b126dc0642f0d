package redelivery_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"log/slog"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/apache/pulsar-client-go/pulsar"
	plog "github.com/apache/pulsar-client-go/pulsar/log"

	"github.com/pulsar-redelivery/redelivery"
	"github.com/pulsar-redelivery/redelivery/backoff"
	"github.com/pulsar-redelivery/redelivery/internal/logtest"
	"github.com/pulsar-redelivery/redelivery/pulsartest"
	"github.com/pulsar-redelivery/redelivery/reconsume"
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
			return client.Subscribe(opts) // in other code
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
		inner, err := client.Subscribe(orders) // in other code
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
		consumer, err := redelivery.Subscribe(client, orders, redelivery.WithAckTimeout(time.Second))
		if err != nil {
			return err
		}
		defer consumer.Close()
		msg, err := consumer.Receive(ctx)
		if err != nil {
			return err
		}
		for range 12 { // work that takes longer than the ack timeout
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
			consumer.Nack(msg) // the application still has the message
			return err
		}
		fmt.Println("published and acknowledged")
		return nil
	}, redelivery.WithReconsumeBackoff(backoff.Fixed(soon)))
	// Output:
	// on its way
	// published and acknowledged
}

const soon = 20 * time.Millisecond

// try subscribes with options, and calls f with the Consumer and its one message.
func try(f func(context.Context, *redelivery.Consumer, pulsar.Message) error, options ...redelivery.Option) {
	withOrder(func(ctx context.Context, client pulsar.Client) error {
		consumer, err := redelivery.Subscribe(client, orders, options...)
		if err != nil {
			return err
		}
		defer consumer.Close()
		msg, err := consumer.Receive(ctx)
		if err != nil {
			return err
		}
		return f(ctx, consumer, msg)
	})
}

// again nacks a message and receives it again.
func again(ctx context.Context, consumer *redelivery.Consumer, msg pulsar.Message) error {
	consumer.Nack(msg)
	msg, err := consumer.Receive(ctx)
	if err != nil {
		return err
	}
	fmt.Println("redelivery", msg.RedeliveryCount())
	return consumer.Ack(msg)
}

// letter prints the first message of a dead letter topic.
func letter(ctx context.Context, client pulsar.Client, topic, subscription string) error {
	c, err := client.Subscribe(pulsar.ConsumerOptions{Topic: topic, SubscriptionName: subscription})
	if err != nil {
		return err
	}
	defer c.Close()
	msg, err := c.Receive(ctx)
	if err != nil {
		return err
	}
	fmt.Printf("%s: %s\n", msg.Payload(), msg.Properties()[reconsume.PropertyExceptionMessage])
	return c.Ack(msg)
}

func ExampleWithNackRedeliveryDelay() {
	try(again, redelivery.WithNackRedeliveryDelay(soon))
	// Output: redelivery 1
}

func ExampleWithNackRedeliveryBackoff() {
	try(func(_ context.Context, consumer *redelivery.Consumer, msg pulsar.Message) error {
		d, err := consumer.Delivery(msg)
		fmt.Println("a nack would delay it by", d.NackDelay)
		return err
	}, redelivery.WithNackRedeliveryBackoff(backoff.Exponential{Min: time.Second, Max: time.Minute}))
	// Output: a nack would delay it by 1s
}

func ExampleWithAckTimeout() {
	try(func(ctx context.Context, consumer *redelivery.Consumer, _ pulsar.Message) error { // not settled
		msg, err := consumer.Receive(ctx)
		if err != nil {
			return err
		}
		fmt.Println("redelivery", msg.RedeliveryCount())
		return consumer.Ack(msg)
	}, redelivery.WithAckTimeout(soon))
	// Output: redelivery 1
}

func ExampleWithAckTimeoutRedeliveryBackoff() {
	try(func(_ context.Context, consumer *redelivery.Consumer, msg pulsar.Message) error {
		d, err := consumer.Delivery(msg)
		fmt.Println("it times out in", time.Until(d.AckDeadline).Round(time.Second))
		return err
	}, redelivery.WithAckTimeout(10*time.Second),
		redelivery.WithAckTimeoutRedeliveryBackoff(backoff.Exponential{Min: time.Second, Max: time.Minute}))
	// Output: it times out in 11s
}

func ExampleWithReconsumeBackoff() {
	try(func(ctx context.Context, consumer *redelivery.Consumer, msg pulsar.Message) error {
		if err := consumer.ReconsumeLaterLevel(ctx, msg, 2); err != nil {
			return err
		}
		msg, err := consumer.Receive(ctx)
		if err != nil {
			return err
		}
		fmt.Println("it waited for", msg.Properties()["DELAY_TIME"], "ms")
		return consumer.Ack(msg)
	}, redelivery.WithReconsumeBackoff(backoff.DelayLevels{soon, 2 * soon, time.Minute}))
	// Output: it waited for 40 ms
}

func ExampleWithCause() {
	withOrder(func(ctx context.Context, client pulsar.Client) error {
		consumer, err := redelivery.Subscribe(client, orders, redelivery.WithReconsumeBackoff(backoff.Fixed(soon)),
			redelivery.WithDeadLetterPolicy(redelivery.DeadLetterPolicy{MaxReconsumes: 1,
				InitialSubscriptionName: "clerk"}))
		if err != nil {
			return err
		}
		defer consumer.Close()
		for range 2 {
			msg, err := consumer.Receive(ctx)
			if err != nil {
				return err
			}
			if err := consumer.ReconsumeLaterNext(ctx, msg,
				redelivery.WithCause(errors.New("out of coffee"))); err != nil {
				return err
			}
		}
		return letter(ctx, client, "orders-billing-DLQ", "clerk")
	})
	// Output: one coffee: out of coffee
}

func ExampleWithDeadLetterPolicy() {
	withOrder(func(ctx context.Context, client pulsar.Client) error {
		consumer, err := redelivery.Subscribe(client, orders,
			redelivery.WithDeadLetterPolicy(redelivery.DeadLetterPolicy{MaxDeliveries: 1, Topic: "dead-orders",
				InitialSubscriptionName: "clerk"}))
		if err != nil {
			return err
		}
		defer consumer.Close()
		msg, err := consumer.Receive(ctx)
		if err != nil {
			return err
		}
		if err := consumer.NackWithReason(msg, errors.New("out of coffee")); err != nil {
			return err
		}
		return letter(ctx, client, "dead-orders", "clerk")
	})
	// Output: one coffee: out of coffee
}

func ExampleWithClient() {
	withOrder(func(ctx context.Context, client pulsar.Client) error {
		inner, err := client.Subscribe(orders) // in other code
		if err != nil {
			return err
		}
		consumer, err := redelivery.Wrap(inner, redelivery.WithClient(client),
			redelivery.WithLogger(slog.New(slog.DiscardHandler)),
			redelivery.WithDeadLetterPolicy(redelivery.DeadLetterPolicy{MaxDeliveries: 1,
				InitialSubscriptionName: "clerk"}))
		if err != nil {
			return err
		}
		defer consumer.Close()
		msg, err := consumer.Receive(ctx)
		if err != nil {
			return err
		}
		if err := consumer.DeadLetter(ctx, msg, errors.New("closed on Mondays")); err != nil {
			return err
		}
		return letter(ctx, client, "orders-billing-DLQ", "clerk")
	})
	// Output: one coffee: closed on Mondays
}

func ExampleWithReconsumer() {
	withOrder(func(ctx context.Context, client pulsar.Client) error {
		r, err := reconsume.New(client,
			reconsume.Options{Topic: "orders", Subscription: "billing", InitialSubscriptionName: "clerk"})
		if err != nil {
			return err
		}
		defer r.Close()
		consumer, err := redelivery.Subscribe(client, orders, redelivery.WithReconsumer(r),
			redelivery.WithLogger(slog.New(slog.DiscardHandler)))
		if err != nil {
			return err
		}
		defer consumer.Close()
		msg, err := consumer.Receive(ctx)
		if err != nil {
			return err
		}
		if err := consumer.DeadLetter(ctx, msg, errors.New("no such table")); err != nil {
			return err
		}
		return letter(ctx, client, r.DeadLetterTopic(), "clerk")
	})
	// Output: one coffee: no such table
}

func ExampleWithNackRetryTopic() {
	try(func(ctx context.Context, consumer *redelivery.Consumer, msg pulsar.Message) error {
		if err := consumer.NackWithDelay(msg, soon); err != nil {
			return err
		}
		msg, err := consumer.Receive(ctx)
		if err != nil {
			return err
		}
		fmt.Println("redelivery", msg.RedeliveryCount(), "from", msg.Topic())
		return consumer.Ack(msg)
	}, redelivery.WithReconsumeBackoff(backoff.Fixed(time.Minute)), redelivery.WithNackRetryTopic(soon))
	// Output: redelivery 1 from persistent://public/default/orders-billing-RETRY
}

func ExampleWithRedeliveryFrom() {
	try(again, redelivery.WithRedeliveryFrom(redelivery.FromBroker), redelivery.WithNackRedeliveryDelay(soon))
	// Output: redelivery 1
}

func ExampleWithRedeliveryResolution() {
	try(again, redelivery.WithRedeliveryResolution(5*time.Millisecond),
		redelivery.WithRedeliveryFrom(redelivery.FromBroker),
		redelivery.WithNackRedeliveryDelay(soon))
	// Output: redelivery 1
}

func ExampleWithMemoryLimit() {
	try(again, redelivery.WithMemoryLimit(0), redelivery.WithNackRedeliveryDelay(soon)) // it comes from the broker
	// Output: redelivery 1
}

func ExampleWithObserver() {
	try(again, redelivery.WithNackRedeliveryDelay(soon), redelivery.WithObserver(redelivery.Observer{
		Settled: func(s redelivery.Settled) { fmt.Println(s.Outcome, "after attempt", s.Attempts) },
	}))
	// Output:
	// nacked after attempt 1
	// redelivery 1
	// acked after attempt 2
}

func ExampleWithLogger() {
	logger := slog.New(slog.NewTextHandler(os.Stdout,
		&slog.HandlerOptions{ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
			if a.Key == slog.TimeKey || a.Key == "consumer" {
				return slog.Attr{}
			}
			return a
		}}))
	try(func(_ context.Context, consumer *redelivery.Consumer, msg pulsar.Message) error {
		consumer.Nack(nil)
		return consumer.Ack(msg)
	}, redelivery.WithLogger(logger))
	// Output: level=WARN msg="redelivery: nack failed" error="redelivery: message is nil, want one that was received" subscription=billing
}

func ExampleWithoutChecks() {
	logger := slog.New(slog.NewTextHandler(os.Stdout, nil))
	// WithoutChecks suppresses the warning that this delay does not grow
	hourly := backoff.Exponential{Min: time.Hour, Max: time.Hour}
	try(func(_ context.Context, consumer *redelivery.Consumer, msg pulsar.Message) error {
		return consumer.Ack(msg)
	}, redelivery.WithLogger(logger), redelivery.WithNackRedeliveryBackoff(hourly), redelivery.WithoutChecks())
	// Output:
}

func ExampleConsumer_Pause() {
	try(func(ctx context.Context, consumer *redelivery.Consumer, msg pulsar.Message) error {
		consumer.Nack(msg)
		consumer.Pause()
		short, cancel := context.WithTimeout(ctx, 5*soon)
		defer cancel()
		_, err := consumer.Receive(short)
		fmt.Println("paused:", err)
		consumer.Resume()
		msg, err = consumer.Receive(ctx)
		if err != nil {
			return err
		}
		fmt.Println("redelivery", msg.RedeliveryCount())
		return consumer.Ack(msg)
	}, redelivery.WithNackRedeliveryDelay(soon))
	// Output:
	// paused: context deadline exceeded
	// redelivery 1
}

func ExampleConsumer_Done() {
	withOrder(func(_ context.Context, client pulsar.Client) error {
		consumer, err := redelivery.Subscribe(client, orders)
		if err != nil {
			return err
		}
		go consumer.Close()
		<-consumer.Done()
		fmt.Println("closed")
		return nil
	})
	// Output: closed
}

// The coffee machine is not warm yet, which is no failure of the message.
func ExampleConsumer_Snooze() {
	try(func(ctx context.Context, consumer *redelivery.Consumer, msg pulsar.Message) error {
		if err := consumer.Snooze(msg, soon); err != nil {
			return err
		}
		msg, err := consumer.Receive(ctx)
		if err != nil {
			return err
		}
		fmt.Println("redelivery", msg.RedeliveryCount())
		return consumer.Ack(msg)
	})
	// Output: redelivery 0
}

// The payload of a message chooses the delay.
func ExampleConsumer_NackWithDelayAndReason() {
	try(func(ctx context.Context, consumer *redelivery.Consumer, msg pulsar.Message) error {
		delay := time.Minute
		if strings.Contains(string(msg.Payload()), "coffee") {
			delay = soon
		}
		if err := consumer.NackWithDelayAndReason(msg, delay, errors.New("the machine is cold")); err != nil {
			return err
		}
		msg, err := consumer.Receive(ctx)
		if err != nil {
			return err
		}
		fmt.Println("redelivery", msg.RedeliveryCount())
		return consumer.Ack(msg)
	})
	// Output: redelivery 1
}

// In the next process, a failed message still has its count and its delay.
func ExampleWithAttemptLog() {
	withOrder(func(ctx context.Context, client pulsar.Client) error {
		for range 2 { // as if the process were started twice
			consumer, err := redelivery.Subscribe(client, orders, redelivery.WithAttemptLog(redelivery.AttemptLog{}),
				redelivery.WithNackRedeliveryDelay(soon))
			if err != nil {
				return err
			}
			msg, err := consumer.Receive(ctx)
			if err != nil {
				return err
			}
			fmt.Println("redelivery", msg.RedeliveryCount())
			if err := consumer.NackWithReason(msg, errors.New("the machine is cold")); err != nil {
				return err
			}
			consumer.Close() // writes the record, if it is not written yet
		}
		return nil
	})
	// Output:
	// redelivery 0
	// redelivery 1
}

// The log lists the failed messages of a subscription, each with its cause.
func ExampleConsumer_AttemptLog() {
	try(func(_ context.Context, consumer *redelivery.Consumer, msg pulsar.Message) error {
		if err := consumer.NackWithReason(msg, errors.New("the machine is cold")); err != nil {
			return err
		}
		for _, r := range consumer.AttemptLog().Records() {
			fmt.Println(r.Topic, r.Count, r.Cause, time.Until(r.Due) > 50*time.Minute)
		}
		return nil
	}, redelivery.WithAttemptLog(redelivery.AttemptLog{}), redelivery.WithNackRedeliveryDelay(time.Hour))
	// Output: persistent://public/default/orders 1 the machine is cold true
}
