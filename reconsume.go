package redelivery

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/apache/pulsar-client-go/pulsar"

	"github.com/pulsar-redelivery/redelivery/internal/ledger"
	"github.com/pulsar-redelivery/redelivery/internal/publishing"
	"github.com/pulsar-redelivery/redelivery/reconsume"
)

// ReconsumeOption configures one call of a ReconsumeLater method: WithCause, WithCallback.
type ReconsumeOption = reconsume.LaterOption

// WithCause (default: none) is the error that the message failed with. The retry carries it, and so does the dead letter after too many
// retries, unless a later error replaces it.
func WithCause(err error) ReconsumeOption { return reconsume.WithCause(err) }

// WithCallback (default: none, so that the call waits) lets a ReconsumeLater method return as soon as the message is on its way. done is
// called once with the outcome, by a goroutine of its own; it may call any method of the Consumer, Close included. If the method returns
// an error, nothing was published and done is not called.
//
// Messages are published in the order of the calls. At most a thousand are under way, of which at most one is larger than 4 KiB and than all
// messages before it. A call for one more waits until there is room, or until its context ends. The context also ends the publishing.
// Close waits half a second for messages under way; for those without an answer by then done gets ErrClosed, possibly after Close has
// returned. A panic of done is logged and counted in Stats.
func WithCallback(done func(error)) ReconsumeOption { return reconsume.WithCallback(done) }

// ReconsumeLaterNext publishes the message to the retry topic and then acknowledges it: PIP-94's reconsumeLater(msg). The broker delivers
// it from there after the next delay of the reconsume policy. After MaxReconsumes retries (WithDeadLetterPolicy; MaxDeliveries of DLQ)
// the message goes to the dead letter topic instead. See reconsume.Reconsumer.Later.
//
// On an error the message is not acknowledged and still the application's: nack it or try again. After reconsume.ErrNotAcknowledged the
// message was published nevertheless, and may come twice. After ErrNoRetryTopic and ErrNotInFlight nothing was published. If ctx ends or
// the Consumer is closed during the call, the message may or may not have been published.
func (c *Consumer) ReconsumeLaterNext(ctx context.Context, msg pulsar.Message, options ...ReconsumeOption) error {
	n, err := c.mayReconsume(ctx, msg, c.publisher.noRetryTopic())
	if err != nil {
		return err
	}
	received := msg
	if d, _, _ := c.ledger.Find(n); d.Message != nil {
		received = d.Message
	}
	how, err := c.publisher.Policy(original(received)) // before the message is being settled: it may call back
	if err != nil {
		return err
	}
	return c.later(ctx, msg, how, options)
}

// ReconsumeLaterLevel is ReconsumeLaterNext with a delay level, counted from 1: PIP-94's reconsumeLater(msg, delayLevel). An
// unknown level is an error.
func (c *Consumer) ReconsumeLaterLevel(ctx context.Context, msg pulsar.Message, level int, options ...ReconsumeOption) error {
	if _, err := c.mayReconsume(ctx, msg, c.publisher.noRetryTopic()); err != nil {
		return err
	}
	how, err := c.publisher.Level(level)
	if err != nil {
		return err
	}
	return c.later(ctx, msg, how, options)
}

// ReconsumeLaterAfter is ReconsumeLaterNext with a delay in place of the policy's, and with properties that are added to the
// message's; nil for none. A negative delay counts as 0.
func (c *Consumer) ReconsumeLaterAfter(ctx context.Context, msg pulsar.Message, delay time.Duration,
	properties map[string]string, options ...ReconsumeOption) error {
	return c.later(ctx, msg, publishing.Retry{Delay: delay, Properties: properties}, options)
}

// ReconsumeLater is ReconsumeLaterAfter for callers of pulsar.Consumer. It does not wait until the message is published: see
// WithCallback. It waits only until there is a producer, and until there is room among the messages under way, which WithCallback
// limits. If the message cannot be published, ReconsumeLater logs the error, counts it in
// Stats and nacks the message.
func (c *Consumer) ReconsumeLater(msg pulsar.Message, delay time.Duration) {
	c.ReconsumeLaterWithCustomProperties(msg, nil, delay)
}

// ReconsumeLaterWithCustomProperties is ReconsumeLater with properties added to the message.
func (c *Consumer) ReconsumeLaterWithCustomProperties(msg pulsar.Message, properties map[string]string, delay time.Duration) {
	const what = "reconsume later"
	err := c.later(context.Background(), msg, publishing.Retry{Delay: delay, Properties: properties, Callback: func(err error) {
		if err != nil {
			c.report(what, err) // observers are told already
			c.failNack(c.nackMessage(msg, nil, nil))
		}
	}}, nil)
	if err != nil {
		c.fail("reconsume", what, err)
		if _, foreign := c.nameOf(msg); foreign == nil {
			c.failNack(c.nackMessage(msg, nil, nil))
		}
	}
}

// later settles a message by publishing it to the retry topic, or to the dead letter topic after too many.
func (c *Consumer) later(ctx context.Context, msg pulsar.Message, how publishing.Retry, options []ReconsumeOption) error {
	noTopic := c.publisher.noRetryTopic()
	if _, err := c.mayReconsume(ctx, msg, noTopic); err != nil {
		return err
	}
	how = c.publisher.With(how, options)
	if ctx == nil {
		ctx = context.Background()
	}
	begin := func() (finish func() error, err error) {
		return c.reconsume(ctx, msg, noTopic, func(ctx context.Context, cm pulsar.ConsumerMessage) (wait func() error) {
			return c.publisher.StartLater(ctx, cm, how)
		})
	}
	if how.Callback == nil {
		return finished(begin())
	}
	select {
	case c.publisher.underway <- struct{}{}:
	case <-ctx.Done():
		return ctx.Err()
	case <-c.life.ended.Done():
		return ErrClosed
	}
	leave := func() { <-c.publisher.underway }
	finish, err := begin()
	if err != nil {
		leave()
		return err
	}
	go c.safely(func() {
		err := errPanicked
		defer func() {
			leave() // the callback may reconsume
			how.Callback(err)
		}()
		err = finish()
	})
	return nil
}

// finished is the outcome of what reconsume began.
func finished(finish func() error, err error) error {
	if err != nil {
		return err
	}
	return finish()
}

// DeadLetter publishes the message to the dead letter topic, with the reason, and then acknowledges it. It needs WithDeadLetterPolicy,
// DLQ or a retry topic. Its errors are those of ReconsumeLaterNext.
func (c *Consumer) DeadLetter(ctx context.Context, msg pulsar.Message, reason error) error {
	return finished(c.reconsume(ctx, msg, c.publisher.noDeadLetterTopic(),
		func(ctx context.Context, cm pulsar.ConsumerMessage) (wait func() error) {
			return c.publisher.StartDeadLetter(ctx, cm, reason)
		}))
}

// DeadLetterTo returns an error that wraps reason and sends its dead letter to topic instead of the usual dead letter topic. Use it, for
// example, to separate messages that cannot be parsed from messages that a service refused. It works with DeadLetter, with NackWithReason
// on the last delivery, with WithCause, and as the error of a worker's handler or classifier. See reconsume.DeadLetterTo.
func DeadLetterTo(topic string, reason error) error { return reconsume.DeadLetterTo(topic, reason) }

// reconsume begins to settle a message by publishing it and acknowledging its newest delivery; noTopic is the error if there is no topic for
// that. After an error nothing was begun, and observers are not told; else finish must be called, as of publish.
func (c *Consumer) reconsume(ctx context.Context, msg pulsar.Message, noTopic error, start publication) (finish func() error, err error) {
	n, err := c.mayReconsume(ctx, msg, noTopic)
	if err != nil {
		return nil, err
	}
	if ctx == nil {
		ctx = context.Background()
	}
	s := ledger.Settling{Leaves: true}
	switch c.ledger.Settle(n, &s) {
	case ledger.Unsettled:
	default:
		return nil, fmt.Errorf("%w: %v", ErrNotInFlight, n.ID)
	}
	if s.Message == nil {
		if s.Message = c.received(msg); s.Message == nil {
			c.ledger.NotSettled(&s)
			return nil, fmt.Errorf("redelivery: message is a %T and not kept within the memory limit, want one as it was received", msg)
		}
	}
	if !n.Own { // as for Delivery
		s.Count = max(s.Count, countOf(msg))
	}
	return c.publish(ctx, s, original(s.Message), start), nil
}

// mayReconsume returns what a message is known by, or why it cannot be published now.
func (c *Consumer) mayReconsume(ctx context.Context, msg pulsar.Message, noTopic error) (n ledger.Name, err error) {
	if ctx != nil && ctx.Err() != nil {
		return n, ctx.Err()
	}
	switch n, err = c.nameOf(msg); {
	case err != nil:
		return n, err
	case noTopic != nil:
		return n, noTopic
	case c.life.ended.Err() != nil:
		return n, ErrClosed
	}
	return n, nil
}

// publication begins to publish a message. wait waits for the broker's answer, and acknowledges the message then.
type publication func(context.Context, pulsar.ConsumerMessage) (wait func() error)

// publish begins to publish a message that is being settled. finish, which must be called, waits until that is over.
func (c *Consumer) publish(ctx context.Context, s ledger.Settling, msg pulsar.Message, start publication) (finish func() error) {
	if err := c.enter(); err != nil {
		c.finishSettling(&s, err, pulsar.Consumer.AckID)
		return func() error { return err }
	}
	ctx, told := c.publishes(ctx, s, msg)
	tell := c.hooks.postpone(s.ID)
	ctx, cancel := context.WithCancelCause(ctx)
	stop := context.AfterFunc(c.life.cut, func() { cancel(ErrClosed) })
	end := func(err error) error {
		if stop(); err != nil && c.life.ended.Err() != nil && !errors.Is(err, ErrClosed) {
			err = fmt.Errorf("%w: %w", ErrClosed, err)
		}
		cancel(nil)
		c.finishSettling(&s, err, pulsar.Consumer.AckID)
		c.calls.Leave()
		told(err)
		tell()
		return err
	}
	started := false
	defer func() {
		if !started {
			_ = end(errPanicked)
		}
	}()
	wait := start(ctx, pulsar.ConsumerMessage{Consumer: s.Consumer, Message: identified{msg, s.ID, s.Count}})
	started = true
	publishing.Begun(ctx)
	return func() (err error) {
		err = errPanicked
		defer func() { err = end(err) }()
		return wait()
	}
}
