package main

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"time"

	"github.com/apache/pulsar-client-go/pulsar"

	"github.com/pulsar-redelivery/redelivery"
	"github.com/pulsar-redelivery/redelivery/internal/history"
	"github.com/pulsar-redelivery/redelivery/worker"
)

// consume is the process that is killed.
func consume(client pulsar.Client) {
	opts := pulsar.ConsumerOptions{Topic: *child, SubscriptionName: subscription, Type: pulsar.SubscriptionType(*kind),
		SubscriptionInitialPosition: pulsar.SubscriptionPositionEarliest}
	self := fmt.Sprint(os.Getpid())
	to, err := history.Create(*recordsTo, self)
	check(err)
	to.Write(history.Event{Kind: history.Started, Consumer: self})
	note := func(kind history.Kind, msg pulsar.Message) {
		to.Write(history.Event{Kind: kind, Message: string(msg.Payload()), Consumer: self, Count: int(msg.RedeliveryCount()), Delay: delay.Microseconds()})
	}
	if *isPoison {
		handlePoison(client, opts, note)
		return
	}
	var c pulsar.Consumer
	for c == nil { // the broker may not have noticed yet that the last one is gone
		if c, err = subscribe(client, opts); err != nil {
			fmt.Fprintln(os.Stderr, "subscribing:", err)
			c = nil
			time.Sleep(20 * time.Millisecond)
		}
	}
	for {
		msg, err := c.Receive(context.Background())
		check(err)
		note(history.Delivered, msg)
		time.Sleep(*handles)
		note(history.Nacked, msg)
		c.Nack(msg)
	}
}

func subscribe(client pulsar.Client, opts pulsar.ConsumerOptions) (pulsar.Consumer, error) {
	if *plain {
		opts.NackRedeliveryDelay = delay
		opts.DLQ = &pulsar.DLQPolicy{MaxDeliveries: maxDeliveries - 1, DeadLetterTopic: opts.Topic + "-" + subscription + "-DLQ"} // which are redeliveries there
		return client.Subscribe(opts)
	}
	return redelivery.Subscribe(client, opts, options()...)
}

func options() []redelivery.Option {
	return []redelivery.Option{redelivery.WithNackRedeliveryDelay(delay), redelivery.WithAttemptLog(redelivery.AttemptLog{}),
		redelivery.WithDeadLetterPolicy(redelivery.DeadLetterPolicy{MaxDeliveries: maxDeliveries}),
		redelivery.WithLogger(slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelWarn})))}
}

// handlePoison handles messages, of which one ends the process.
func handlePoison(client pulsar.Client, opts pulsar.ConsumerOptions, note func(history.Kind, pulsar.Message)) {
	handle := func(_ context.Context, msg pulsar.Message) error {
		note(history.Delivered, msg)
		if string(msg.Payload()) == poison {
			os.Exit(3)
		}
		time.Sleep(*handles)
		note(history.Acked, msg)
		return nil
	}
	for {
		c, err := subscribe(client, opts)
		if err != nil {
			time.Sleep(20 * time.Millisecond)
			continue
		}
		rc, ok := c.(*redelivery.Consumer)
		if !ok {
			for {
				msg, err := c.Receive(context.Background())
				check(err)
				if err := handle(context.Background(), msg); err == nil {
					check(c.Ack(msg))
				}
			}
		}
		w, err := worker.New(rc, handle, worker.WithConcurrency(4), worker.WithCrashLimit(*crashLimit), worker.WithLogger(slog.New(slog.NewTextHandler(os.Stderr, nil))))
		check(err)
		check(w.Run(context.Background()))
	}
}

const poison = "poison"
