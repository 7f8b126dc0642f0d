package redelivery

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/apache/pulsar-client-go/pulsar"

	"github.com/pulsar-redelivery/redelivery/internal/partition"
	"github.com/pulsar-redelivery/redelivery/internal/publishing"
	"github.com/pulsar-redelivery/redelivery/internal/topicname"
	"github.com/pulsar-redelivery/redelivery/reconsume"
)

// ReconsumeOption configures one call of a ReconsumeLater method: WithCause, WithCallback.
type ReconsumeOption = reconsume.LaterOption

// WithCause (default: none) is the error that the message failed with. The retry carries it, and so does the dead
// letter after too many retries, unless a later error replaces it.
func WithCause(err error) ReconsumeOption { return reconsume.WithCause(err) }

// WithCallback (default: none, so that the call waits) lets a ReconsumeLater method return as soon as the message is on
// its way. done is called once with the outcome, by a goroutine of its own; it may call any method of the Consumer,
// Close included. If the method returns an error, nothing was published and done is not called.
//
// Messages are published in the order of the calls. At most a thousand messages are under way. One that is larger than
// both 4 KiB and every earlier message is under way alone. A call waits until there is room, or until its context ends.
// The end of the context also ends a publication under way. Close waits half a second for messages under way. For each
// that is still unanswered then, done is called with ErrClosed, possibly after Close has returned.
func WithCallback(done func(error)) ReconsumeOption { return reconsume.WithCallback(done) }

// ReconsumeLaterNext publishes the message to the retry topic and then acknowledges it: PIP-94's reconsumeLater(msg).
// The broker delivers it from there after the next delay of the reconsume policy. After MaxReconsumes retries,
// or DLQ.MaxDeliveries without WithDeadLetterPolicy, the message goes to the dead letter topic instead. See
// reconsume.Reconsumer.Later.
//
// After an error the message is not acknowledged and the application still has it: nack it or try again. After
// reconsume.ErrNotAcknowledged the message was published nevertheless, and may come twice. After ErrNoRetryTopic and
// ErrNotInFlight nothing was published. If ctx ends or the Consumer is closed during the call, the message may or may
// not have been published.
func (c *Consumer) ReconsumeLaterNext(ctx context.Context, msg pulsar.Message, options ...ReconsumeOption) error {
	return c.later(ctx, msg, func(received pulsar.Message) (publishing.Retry, error) {
		return c.settings.publisher.Policy(received)
	}, options)
}

// ReconsumeLaterLevel is ReconsumeLaterNext with a delay level, counted from 1: PIP-94's reconsumeLater(msg,
// delayLevel). An unknown level is an error.
func (c *Consumer) ReconsumeLaterLevel(ctx context.Context, msg pulsar.Message, level int,
	options ...ReconsumeOption) error {
	return c.later(ctx, msg, func(pulsar.Message) (publishing.Retry, error) {
		return c.settings.publisher.Level(level)
	}, options)
}

// ReconsumeLaterAfter is ReconsumeLaterNext with a delay in place of the policy's, and with properties that are added
// to the message's; nil for none. A negative delay counts as 0.
func (c *Consumer) ReconsumeLaterAfter(ctx context.Context, msg pulsar.Message, delay time.Duration,
	properties map[string]string, options ...ReconsumeOption) error {
	return c.later(ctx, msg, always(publishing.Retry{Delay: delay, Properties: properties}), options)
}

// always returns a function that returns how for every message.
func always(how publishing.Retry) func(pulsar.Message) (publishing.Retry, error) {
	return func(pulsar.Message) (publishing.Retry, error) { return how, nil }
}

// ReconsumeLater is ReconsumeLaterAfter for callers of pulsar.Consumer. It does not wait until the message is
// published: see WithCallback. It waits only until there is a producer, and until the limits that WithCallback
// describes allow another message. If the message cannot be published, ReconsumeLater logs the error, counts it in
// Stats and nacks the message.
func (c *Consumer) ReconsumeLater(msg pulsar.Message, delay time.Duration) {
	c.ReconsumeLaterWithCustomProperties(msg, nil, delay)
}

// ReconsumeLaterWithCustomProperties is ReconsumeLater with properties added to the message.
func (c *Consumer) ReconsumeLaterWithCustomProperties(msg pulsar.Message, properties map[string]string,
	delay time.Duration) {
	const what = "reconsume later"
	n, invalid := c.nameOf(msg)
	var about []any
	if invalid == nil {
		about = []any{"topic", cmp.Or(n.Topic, orZero(msg.Topic)), "message", n.object}
	}
	err := c.later(context.Background(), msg,
		always(publishing.Retry{Delay: delay, Properties: properties, Callback: func(err error) {
			if err != nil {
				c.logFailed(what, err, about...) // observers know it already
				c.Nack(msg)
			}
		}}), nil)
	if err == nil {
		return
	}
	c.reportFailure("reconsume", what, err, about...)
	if invalid == nil {
		c.Nack(msg)
	}
}

// later publishes a message to the retry topic, or to the dead letter topic after too many retries, and settles it.
func (c *Consumer) later(ctx context.Context, msg pulsar.Message, policy func(pulsar.Message) (publishing.Retry, error),
	options []ReconsumeOption) error {
	if ctx == nil {
		ctx = context.Background()
	}
	x, err := c.outgoingOf(ctx, msg, c.settings.RetryTopic != "", ErrNoRetryTopic)
	if err != nil {
		return err
	}
	how, err := policy(x.Body.(pulsar.Message)) // before settling begins, since a policy may call the Consumer
	if err != nil {
		return err
	}
	for _, option := range options {
		if option != nil {
			option(&how)
		}
	}
	start := func(ctx context.Context, cm pulsar.ConsumerMessage, note *publishing.Note) (wait func() error) {
		return c.settings.publisher.StartLater(ctx, cm, how, note)
	}
	if how.Callback != nil {
		return c.moveAsync(ctx, x, start, how.Callback)
	}
	return awaitMove(c.beginMove(ctx, x, start))
}

// awaitMove takes the results of beginMove, and waits for the outcome.
func awaitMove(finish func() error, err error) error {
	if err != nil {
		return err
	}
	return finish()
}

// DeadLetter publishes the message to the dead letter topic, with the reason, and then acknowledges it. It needs
// WithDeadLetterPolicy, DLQ, WithReconsumer or a retry topic. Its errors are those of ReconsumeLaterNext.
func (c *Consumer) DeadLetter(ctx context.Context, msg pulsar.Message, reason error) error {
	if ctx == nil {
		ctx = context.Background()
	}
	x, err := c.outgoingOf(ctx, msg, c.settings.publisher != nil, noDeadLetterTopic{})
	if err != nil {
		return err
	}
	return awaitMove(c.beginMove(ctx, x,
		func(ctx context.Context, cm pulsar.ConsumerMessage, note *publishing.Note) (wait func() error) {
			return c.settings.publisher.StartDeadLetter(ctx, cm, reason, note)
		}))
}

// DeadLetterTo returns an error that wraps reason and sends its dead letter to topic instead of the Consumer's dead
// letter topic. Use it, for example, to separate messages that cannot be parsed from messages that a service refused.
// It works with DeadLetter, with NackWithReason on the last delivery, with WithCause, and as the error of a worker's
// handler or classifier. See reconsume.DeadLetterTo.
func DeadLetterTo(topic string, reason error) error { return reconsume.DeadLetterTo(topic, reason) }

// outgoingOf describes a message that the application wants to publish to another topic. The error says why it cannot
// be published. If hasTopic is false, there is no such topic, and the error is noTopic.
func (c *Consumer) outgoingOf(ctx context.Context, msg pulsar.Message, hasTopic bool, noTopic error) (
	d partition.Delivery, err error) {
	if ctx.Err() != nil {
		return d, ctx.Err()
	}
	n, err := c.nameOf(msg)
	switch {
	case err != nil:
		return d, err
	case !hasTopic:
		return d, noTopic
	case c.isOver():
		return d, ErrClosed
	}
	i, isOpen, err := c.find(&n)
	switch {
	case err != nil:
		return d, err
	case !isOpen, i.Busy, n.hand != partition.AnyHand && n.hand != i.Hand:
		return d, fmt.Errorf("%w: %v", ErrNotInFlight, n.object)
	}
	d = i.Delivery
	if !n.isOwn { // the application may count its own attempts
		d.Count = max(d.Count, orZero(msg.RedeliveryCount))
	}
	if d.Body == nil {
		d.Body = n.body
	}
	if d.Body == nil {
		return d, fmt.Errorf("redelivery: cannot republish a wrapped message (%T), since the original is not in "+
			"memory: pass the message that Receive returned, or add a method Unwrap() pulsar.Message", msg)
	}
	return d, nil
}

// publication begins to publish a message. wait waits for the broker's answer, and then acknowledges the message.
type publication func(context.Context, pulsar.ConsumerMessage, *publishing.Note) (wait func() error)

// beginMove begins to settle a message by publishing it to another topic and acknowledging its newest delivery. If err
// is nil, the caller must call finish, which waits for the outcome.
func (c *Consumer) beginMove(ctx context.Context, x partition.Delivery, start publication) (finish func() error,
	err error) {
	if err := c.enter(); err != nil {
		return nil, err
	}
	now := c.lock()
	i, isOpen, _ := c.group.Find(x.ID, x.Hand)
	if !isOpen || i.Busy || i.Hand != x.Hand {
		c.unlockAndAct(now)
		c.calls.leave()
		return nil, fmt.Errorf("%w: %v", ErrNotInFlight, x.Object)
	}
	var a partition.Ack
	_ = c.group.BeginAck(x.ID, &a)
	c.unlockAndAct(now)
	a.Whole = false
	note := publishing.NewNote(ctx)
	ctx, cancel := context.WithCancelCause(ctx)
	stop := context.AfterFunc(c.publishing, func() { cancel(ErrClosed) })
	began, stopReading := c.now(), c.readAhead()
	msg := x.Body.(pulsar.Message)
	wait := start(ctx, pulsar.ConsumerMessage{Consumer: acker{a.Source.(pulsar.Consumer), c},
		Message: identified{&redelivered{msg, x.Count, 0}, a.Object.(pulsar.MessageID)}}, note)
	publishing.Begun(ctx)
	return func() error {
		err := wait()
		stopReading()
		stop()
		if err != nil && c.isOver() && !errors.Is(err, ErrClosed) {
			err = fmt.Errorf("%w: %w", ErrClosed, err)
		}
		cancel(nil)
		c.endAck(nil, &a, err, partition.Moved)
		c.calls.leave()
		a.Count = x.Count
		c.reportPublication(&a.Delivery, msg, note, began, err)
		return err
	}, nil
}

// reportPublication reports that a message was published to another topic, or could not be.
func (c *Consumer) reportPublication(d *partition.Delivery, msg pulsar.Message, note *publishing.Note,
	began time.Duration, err error) {
	e := c.settledEvent(d, msg, Reconsumed, began)
	e.Delay, e.Err, e.Took = note.Delay, err, c.now()-began
	if note.Topic != "" {
		e.To = topicname.Full(note.Topic)
	}
	if note.Dead {
		e.Outcome, e.Reason, e.Why = DeadLettered, Reason(note.Reason), note.Why
		level, what := slog.LevelInfo, "dead letter"
		if note.Topic == "" {
			e.Outcome, level, what = Discarded, slog.LevelWarn, "a message is discarded"
		}
		if err == nil {
			attrs := []any{"topic", e.Topic, "message", e.ID, "attempts", e.Attempts}
			if e.To != "" {
				attrs = append(attrs, "to", e.To)
			}
			attrs = append(attrs,
				"reason", e.Reason, "error_type", publishing.TypeName(e.Why), "error", c.textOf(e.Why))
			c.log(level, what, attrs...)
		}
	}
	if c.observer.Settled != nil {
		c.observer.Settled(e)
	}
}
