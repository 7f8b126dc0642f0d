package redelivery

import (
	"context"
	"errors"
	"time"

	"github.com/apache/pulsar-client-go/pulsar"

	"github.com/pulsar-redelivery/redelivery/internal/driver"
	"github.com/pulsar-redelivery/redelivery/reconsume"
)

// Ack acknowledges a message. It is final: unless Ack returns an error, the message is not handed out again. A message that waits
// for its redelivery may still be acknowledged. Acknowledging a message twice is no error. After Close, Ack returns ErrClosed.
// With AckWithResponse in pulsar.ConsumerOptions it waits for the broker and returns the broker's error.
func (c *Consumer) Ack(msg pulsar.Message) error {
	return c.driver.Ack(msg)
}

// AckID is Ack by message id.
func (c *Consumer) AckID(id pulsar.MessageID) error {
	return c.driver.AckID(id)
}

// AckWithTxn acknowledges a message in a transaction. The message's delay and ack timeout end. If the transaction is aborted, the
// broker sends the message again at once, and the Consumer's own redelivery count starts again.
//
// For messages of a batch, enable batch-index acknowledgement in pulsar.ConsumerOptions and at the broker. Without it,
// pulsar-client-go sends nothing until the last message of the batch is acknowledged, and that one's transaction acknowledges
// them all.
func (c *Consumer) AckWithTxn(msg pulsar.Message, txn pulsar.Transaction) error {
	return c.driver.AckWithTxn(msg, txn)
}

// AckIDList acknowledges several messages, each as Ack does. The error may be a pulsar.AckError. It maps each id of ids that was
// not acknowledged to its error: the broker's with AckWithResponse, ErrClosed after Close.
func (c *Consumer) AckIDList(ids []pulsar.MessageID) error {
	return c.driver.AckIDList(ids)
}

// AckCumulative acknowledges all messages of a partition up to and including this one. None of them comes back. It is for
// Exclusive and Failover: on the other types it returns pulsar-client-go's error.
func (c *Consumer) AckCumulative(msg pulsar.Message) error {
	return c.driver.AckCumulative(msg)
}

// AckIDCumulative is AckCumulative by message id.
func (c *Consumer) AckIDCumulative(id pulsar.MessageID) error {
	return c.driver.AckIDCumulative(id)
}

// Nack redelivers a message that the application could not process, after the delay that the nack policy gives for its redelivery
// count (PIP-106). On the last delivery by DLQPolicy.MaxDeliveries the message becomes a dead letter at once. A second nack
// changes nothing, and neither does a nack of an earlier delivery. Until the message comes back, it may still be acknowledged. A
// message of a non-persistent topic does not come back. A nil or foreign message is logged and counted in Stats.
func (c *Consumer) Nack(msg pulsar.Message) {
	c.failNack(c.driver.Nack(msg, nil, nil))
}

// NackWithReason is Nack with a reason. On the last delivery the message becomes a dead letter at once, and the dead letter
// carries the reason. If reason is nil, the dead letter says how often the message was delivered. NackWithReason returns ErrClosed
// after Close, and an error for a nil or foreign message.
func (c *Consumer) NackWithReason(msg pulsar.Message, reason error) error {
	return c.driver.Nack(msg, nil, reason)
}

// NackWithDelay is Nack with a delay that replaces the policy's this once. A negative delay counts as 0. It returns ErrClosed after
// Close, and an error for a nil or foreign message.
func (c *Consumer) NackWithDelay(msg pulsar.Message, delay time.Duration) error {
	return c.driver.Nack(msg, &delay, nil)
}

// NackID is Nack by message id. Unlike NackID of pulsar-client-go, it follows the policy. An id that this Consumer did not hand
// out, or has settled, starts at redelivery count 0. If the message did not fit the hold limit when it was handed out, the Consumer asks
// the broker for it when it is due, on the last delivery too.
func (c *Consumer) NackID(id pulsar.MessageID) {
	c.failNack(c.driver.NackID(id))
}

// failNack reports what a nack cannot return. After Close the broker sends the message again in any case.
func (c *Consumer) failNack(err error) {
	if err != nil && !errors.Is(err, ErrClosed) {
		c.driver.Fail("nack", "nack", err)
	}
}

// ReconsumeLaterNext publishes the message to the retry topic and then acknowledges it: PIP-94's reconsumeLater(msg). The broker
// delivers it from there after the next delay of the reconsume policy. After DLQPolicy.MaxDeliveries retries the message goes to
// the dead letter topic instead. See reconsume.Reconsumer.Later.
//
// On an error the message is not acknowledged and still the application's: nack it or try again. After
// reconsume.ErrNotAcknowledged the message was published all the same, and may come twice. After ErrNoRetryTopic and ErrNotHeld
// nothing was published; ErrNotHeld means that the message was settled before or is not one of this Consumer's. If ctx ends or
// the Consumer is closed during the call, nobody knows whether the message was published.
func (c *Consumer) ReconsumeLaterNext(ctx context.Context, msg pulsar.Message) error {
	return c.driver.ReconsumeNext(ctx, msg)
}

// ReconsumeLaterLevel is ReconsumeLaterNext with a delay level, counted from 1: PIP-94's reconsumeLater(msg, delayLevel). An
// unknown level is an error.
func (c *Consumer) ReconsumeLaterLevel(ctx context.Context, msg pulsar.Message, level int) error {
	return c.driver.Reconsume(ctx, msg, func(ctx context.Context, r *reconsume.Reconsumer, cm pulsar.ConsumerMessage) error {
		return r.LaterLevel(ctx, cm, level)
	})
}

// ReconsumeLaterAfter is ReconsumeLaterNext with a delay in place of the policy's, and with properties that are added to the
// message's. A negative delay counts as 0.
func (c *Consumer) ReconsumeLaterAfter(ctx context.Context, msg pulsar.Message, delay time.Duration,
	properties map[string]string) error {
	return c.driver.Reconsume(ctx, msg, after(delay, properties))
}

// after publishes a retry with a delay of its own.
func after(delay time.Duration, properties map[string]string) driver.Publish {
	return func(ctx context.Context, r *reconsume.Reconsumer, cm pulsar.ConsumerMessage) error {
		return r.LaterAfter(ctx, cm, delay, properties)
	}
}

// DeadLetter publishes the message to the dead letter topic, with the reason, and then acknowledges it. It needs a DLQ policy or
// a retry topic. Its errors are those of ReconsumeLaterNext.
func (c *Consumer) DeadLetter(ctx context.Context, msg pulsar.Message, reason error) error {
	return c.driver.DeadLetter(ctx, msg, reason)
}

// ReconsumeLater is ReconsumeLaterAfter for callers of pulsar.Consumer. It cannot return an error: it logs the error, counts it
// in Stats and nacks the message.
func (c *Consumer) ReconsumeLater(msg pulsar.Message, delay time.Duration) {
	c.ReconsumeLaterWithCustomProperties(msg, nil, delay)
}

// ReconsumeLaterWithCustomProperties is ReconsumeLater with properties added to the message.
func (c *Consumer) ReconsumeLaterWithCustomProperties(msg pulsar.Message, properties map[string]string, delay time.Duration) {
	c.driver.ReconsumeOrNack(msg, after(delay, properties))
}
