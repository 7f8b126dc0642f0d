package main

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"os"
	"strconv"
	"time"

	"github.com/apache/pulsar-client-go/pulsar"
	plog "github.com/apache/pulsar-client-go/pulsar/log"

	"github.com/pulsar-redelivery/redelivery"
	"github.com/pulsar-redelivery/redelivery/backoff"
	"github.com/pulsar-redelivery/redelivery/internal/history"
)

// consumer is a process of plain pulsar-client-go or of this library.
type consumer struct {
	job
	pulsar.Consumer
	wrapped *redelivery.Consumer // nil with plain pulsar-client-go
	to      *history.Writer
	failed  map[string]int
}

var policy = backoff.Exponential{Min: firstDelay, Max: maxDelay, Multiplier: 2}

// consume runs a consumer of the client "go" or "redelivery" until standard input ends.
func consume(client string) error {
	j, err := readJob()
	if err != nil {
		return err
	}
	quiet := slog.New(slog.NewTextHandler(io.Discard, nil))
	pc, err := pulsar.NewClient(pulsar.ClientOptions{URL: j.URL, Logger: plog.NewLoggerWithSlog(quiet)})
	if err != nil {
		return err
	}
	defer pc.Close()
	file, err := os.OpenFile(j.File, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return err
	}
	c := &consumer{job: j, to: history.NewWriter(file), failed: map[string]int{}}
	opts := pulsar.ConsumerOptions{Topic: j.Topic, SubscriptionName: subscription, Type: pulsar.Shared,
		SubscriptionInitialPosition: pulsar.SubscriptionPositionEarliest, AckWithResponse: j.Best,
		RetryEnable:                    j.Workload == retry,
		EnableBatchIndexAcknowledgment: j.Best}
	if j.Workload == retry {
		opts.DLQ = &pulsar.DLQPolicy{MaxDeliveries: 100}
	}
	if client == "go" {
		exact := int64(0)
		if opts.NackBackoffPolicy = policy; j.Workload == batch {
			opts.NackBackoffPolicy, opts.NackRedeliveryDelay = nil, firstDelay
		}
		if j.Best {
			opts.NackPrecisionBit = &exact
		}
		c.Consumer, err = pc.Subscribe(opts)
	} else {
		c.wrapped, err = redelivery.Subscribe(pc, opts, c.options(quiet)...)
		c.Consumer = c.wrapped
	}
	if err != nil {
		return err
	}
	c.to.Write(history.Event{Kind: history.Started, Consumer: j.Name})
	fmt.Println("ready")
	go c.work()
	untilOver()
	c.Close()
	return nil
}

func (c *consumer) options(quiet *slog.Logger) []redelivery.Option {
	options := []redelivery.Option{redelivery.WithLogger(quiet)}
	if c.Workload == batch {
		options = append(options, redelivery.WithNackRedeliveryDelay(firstDelay))
	} else {
		options = append(options, redelivery.WithNackRedeliveryBackoff(policy))
	}
	if c.Workload == timeout {
		options = append(options, redelivery.WithAckTimeout(ackTimeout))
	}
	if c.Best {
		options = append(options, redelivery.WithAttemptLog(redelivery.AttemptLog{}))
	}
	return options
}

func (c *consumer) work() {
	for {
		msg, err := c.Receive(context.Background())
		if err != nil {
			return
		}
		c.handle(msg)
	}
}

func (c *consumer) handle(msg pulsar.Message) {
	name, count := string(msg.Payload()), msg.RedeliveryCount()
	if c.wrapped != nil {
		count = c.wrapped.RedeliveryCount(msg)
	}
	n, _ := strconv.Atoi(name)
	again, _ := strconv.Atoi(msg.Properties()["RECONSUMETIMES"]) // 0 if missing
	note := func(e history.Event) {
		e.Message, e.Consumer, e.Copy = name, c.job.Name, msg.ID().String()
		c.to.Write(e)
	}
	note(history.Event{Kind: history.Delivered, Count: int(count), Retry: again})
	fails := func(delay time.Duration, kind history.Kind) {
		c.failed[name]++
		note(history.Event{Kind: kind, Delay: delay.Microseconds()})
	}
	switch {
	case c.Workload == nack && c.failed[name] < failures:
		fails(policy.Next(count), history.Nacked)
		c.Nack(msg)
	case c.Workload == batch && n%10 == 4 && c.failed[name] < failures:
		fails(firstDelay, history.Nacked)
		c.Nack(msg)
	case c.Workload == timeout && n%4 == 0 && c.failed[name] < 1:
		fails(ackTimeout, history.Nacked) // no call: the application never settles the message
	case c.Workload == retry && n%2 == 0 && again < failures:
		fails(retryDelay, history.Reconsumed)
		if c.wrapped == nil {
			c.ReconsumeLater(msg, retryDelay)
		} else if err := c.wrapped.ReconsumeLaterAfter(context.Background(), msg, retryDelay, nil); err != nil {
			note(history.Event{Kind: history.Refused})
			note(history.Event{Kind: history.Nacked, Delay: policy.Next(count).Microseconds()})
			c.Nack(msg)
		}
	default:
		note(history.Event{Kind: history.Acking})
		if err := c.Ack(msg); err != nil {
			note(history.Event{Kind: history.Refused})
			return
		}
		note(history.Event{Kind: history.Acked, Confirmed: c.Best})
	}
}
