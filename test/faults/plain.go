package main

import (
	"context"

	"github.com/apache/pulsar-client-go/pulsar"

	"github.com/pulsar-redelivery/redelivery/internal/history"
	"github.com/pulsar-redelivery/redelivery/worker"
)

// plain is a variant that is never drawn, since its findings would not be about this library.
const plain = "plain"

// handleMixed fails on the same messages as the application mixedApp. All failures are errors, since plain
// pulsar-client-go has only Nack.
func (c *consumer) handleMixed(_ context.Context, msg pulsar.Message) error {
	if c.mustFail(number(msg.Payload()), int(msg.RedeliveryCount())) {
		return errFails
	}
	return nil
}

// beginPlain does a Worker's work with plain pulsar-client-go: eight goroutines receive, and acknowledge or nack.
func (c *consumer) beginPlain(opts pulsar.ConsumerOptions, handle worker.Handler) error {
	exact := int64(0)
	opts.NackBackoffPolicy, opts.NackPrecisionBit = c.policy, &exact
	if c.work.MaxDeliveries > 0 {
		opts.DLQ = &pulsar.DLQPolicy{MaxDeliveries: uint32(c.work.MaxDeliveries), DeadLetterTopic: c.work.letterTopic()}
	}
	var err error
	if c.plain, err = c.client.Subscribe(opts); err != nil {
		return err
	}
	c.note(history.Event{Kind: history.Started})
	for range 8 {
		c.wg.Go(func() {
			for {
				msg, err := c.plain.Receive(c.ctx)
				if err != nil {
					return
				}
				c.deliver(msg, int(msg.RedeliveryCount()), false)
				if handle(c.ctx, msg) != nil {
					delay := c.policy.Next(msg.RedeliveryCount())
					c.noteOf(msg, history.Event{Kind: history.Nacked, Delay: delay.Microseconds()})
					c.plain.Nack(msg)
					continue
				}
				c.noteOf(msg, history.Event{Kind: history.Acking})
				if c.plain.Ack(msg) == nil {
					c.noteOf(msg, history.Event{Kind: history.Acked})
				}
			}
		})
	}
	return nil
}
