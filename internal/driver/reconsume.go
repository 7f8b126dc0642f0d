package driver

import (
	"context"
	"errors"
	"fmt"

	"github.com/apache/pulsar-client-go/pulsar"

	"github.com/pulsar-redelivery/redelivery/internal/ledger"
	"github.com/pulsar-redelivery/redelivery/reconsume"
)

// Publish publishes a message elsewhere, and acknowledges it when the broker has it.
type Publish func(context.Context, *reconsume.Reconsumer, pulsar.ConsumerMessage) error

// Reconsume settles a message by publishing it to the retry topic.
func (x *Driver) Reconsume(ctx context.Context, msg pulsar.Message, publish Publish) error {
	_, err := x.reconsume(ctx, msg, x.publisher.noRetryTopic(), publish)
	return err
}

// ReconsumeNext is Reconsume with the delay of the policy, which is asked before the message is being settled: it may call back.
func (x *Driver) ReconsumeNext(ctx context.Context, msg pulsar.Message) error {
	n, err := x.mayReconsume(ctx, msg, x.publisher.noRetryTopic())
	if err != nil {
		return err
	}
	received := msg
	if d, _, _ := x.ledger.Find(n); d.Message != nil {
		received = d.Message
	}
	later, err := x.publisher.reconsumer.Next(original(received))
	if err != nil {
		return err
	}
	return x.Reconsume(ctx, msg, func(ctx context.Context, _ *reconsume.Reconsumer, cm pulsar.ConsumerMessage) error {
		return later(ctx, cm)
	})
}

// DeadLetter settles a message by publishing it to the dead letter topic.
func (x *Driver) DeadLetter(ctx context.Context, msg pulsar.Message, reason error) error {
	_, err := x.reconsume(ctx, msg, x.publisher.noDeadLetterTopic(),
		func(ctx context.Context, r *reconsume.Reconsumer, cm pulsar.ConsumerMessage) error {
			return r.DeadLetter(ctx, cm, reason)
		})
	return err
}

// ReconsumeOrNack is Reconsume for a caller that gets no error: the message is nacked then.
func (x *Driver) ReconsumeOrNack(msg pulsar.Message, publish Publish) {
	told, err := x.reconsume(context.Background(), msg, x.publisher.noRetryTopic(), publish)
	switch {
	case err == nil:
		return
	case told:
		x.report("reconsume later", err)
	default:
		x.Fail("reconsume", "reconsume later", err)
	}
	if n, err := x.nameOf(msg); err == nil {
		if err := x.nack(n, msg, nil, nil); err != nil && !errors.Is(err, ErrClosed) {
			x.Fail("nack", "nack", err)
		}
	}
}

// reconsume settles a message by publishing it and acknowledging its newest delivery; noTopic is the error if there is no topic for that.
// told says that observers know of it.
func (x *Driver) reconsume(ctx context.Context, msg pulsar.Message, noTopic error, publish Publish) (told bool, err error) {
	n, err := x.mayReconsume(ctx, msg, noTopic)
	if err != nil {
		return false, err
	}
	if ctx == nil {
		ctx = context.Background()
	}
	s := ledger.Settling{Leaves: true}
	switch x.ledger.Settle(n, &s) {
	case ledger.Unsettled:
	default:
		return false, fmt.Errorf("%w: %v", ErrNotHeld, n.ID)
	}
	if s.Message == nil {
		if s.Message = x.received(msg); s.Message == nil {
			x.ledger.NotSettled(&s)
			return false, fmt.Errorf("redelivery: message is a %T and not kept within the memory limit, want one as it was received", msg)
		}
	}
	if !n.HasHand { // as for Delivery
		s.Count = max(s.Count, countOf(msg))
	}
	return true, x.publish(ctx, s, original(s.Message), func(ctx context.Context, cm pulsar.ConsumerMessage) func() error {
		return func() error { return publish(ctx, x.publisher.reconsumer, cm) }
	})()
}

// mayReconsume returns what a message is known by, or why it cannot be published now.
func (x *Driver) mayReconsume(ctx context.Context, msg pulsar.Message, noTopic error) (n ledger.Name, err error) {
	if ctx != nil && ctx.Err() != nil {
		return n, ctx.Err()
	}
	switch n, err = x.nameOf(msg); {
	case err != nil:
		return n, err
	case noTopic != nil:
		return n, noTopic
	case x.life.ended.Err() != nil:
		return n, ErrClosed
	}
	return n, nil
}

// publication begins to publish a message. wait waits for the broker's answer, and acknowledges the message then.
type publication func(context.Context, pulsar.ConsumerMessage) (wait func() error)

// publish begins to publish a message that is being settled. finish, which must be called, waits until that is over.
func (x *Driver) publish(ctx context.Context, s ledger.Settling, msg pulsar.Message, start publication) (finish func() error) {
	if !x.calls.Enter() {
		x.finishSettling(&s, ErrClosed)
		return func() error { return ErrClosed }
	}
	ctx, told := x.publishes(ctx, s, msg)
	tell := x.hooks.postpone(s.ID)
	ctx, cancel := context.WithCancelCause(ctx)
	stop := context.AfterFunc(x.life.cut, func() { cancel(ErrClosed) })
	end := func(err error) error {
		if stop(); err != nil && x.life.ended.Err() != nil && !errors.Is(err, ErrClosed) {
			err = fmt.Errorf("%w: %w", ErrClosed, err)
		}
		cancel(nil)
		x.calls.Leave()
		x.finishSettling(&s, err)
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
	return func() (err error) {
		err = errPanicked
		defer func() { err = end(err) }()
		return wait()
	}
}
