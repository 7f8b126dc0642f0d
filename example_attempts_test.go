package redelivery_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/apache/pulsar-client-go/pulsar"

	"github.com/pulsar-redelivery/redelivery"
)

// A message that failed is counted, and waits, in the next process too.
func ExampleWithAttemptLog() {
	withOrder(func(ctx context.Context, client pulsar.Client) error {
		for range 2 { // as if the process were started twice
			consumer, err := redelivery.Subscribe(client, orders, redelivery.WithAttemptLog(redelivery.AttemptLog{}), redelivery.WithNackRedeliveryDelay(soon))
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
			consumer.Close() // writes what is not written yet
		}
		return nil
	})
	// Output:
	// redelivery 0
	// redelivery 1
}

// Which messages of a subscription failed, and why.
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
