package redelivery

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/apache/pulsar-client-go/pulsar"

	"github.com/pulsar-redelivery/redelivery/internal/delivery"
)

// ReconsumeLaterNext publishes the message to the retry topic, from which it comes again after the next delay of the
// reconsume policy, and acknowledges it: PIP-94's reconsumeLater(msg). After DLQPolicy.MaxDeliveries times it goes to the
// dead letter topic instead. See reconsume.Reconsumer.Later.
//
// On an error the message is not acknowledged and still the application's, to be nacked or tried again; with
// reconsume.ErrNotAcknowledged it was published all the same, and will come twice. ErrNoRetryTopic, and ErrNotHeld if the
// message was settled before or is not one of this Consumer's, say that nothing was published. When ctx ends or the Consumer
// is closed meanwhile, nobody knows whether it was.
func (c *Consumer) ReconsumeLaterNext(ctx context.Context, msg pulsar.Message) error {
	return c.reconsume(ctx, msg, c.table.Settle, func(ctx context.Context, cm pulsar.ConsumerMessage) error {
		return c.reconsumer.Later(ctx, cm)
	})
}

// ReconsumeLaterLevel is ReconsumeLaterNext with a delay level, from 1: PIP-94's reconsumeLater(msg, delayLevel). A level
// that there is not is an error.
func (c *Consumer) ReconsumeLaterLevel(ctx context.Context, msg pulsar.Message, level int) error {
	return c.reconsume(ctx, msg, c.table.Settle, func(ctx context.Context, cm pulsar.ConsumerMessage) error {
		return c.reconsumer.LaterLevel(ctx, cm, level)
	})
}

// ReconsumeLaterAfter is ReconsumeLaterNext with a delay of its own, and properties added to the message's. A negative delay
// counts as 0.
func (c *Consumer) ReconsumeLaterAfter(ctx context.Context, msg pulsar.Message, delay time.Duration,
	properties map[string]string) error {
	return c.reconsume(ctx, msg, c.table.Settle, func(ctx context.Context, cm pulsar.ConsumerMessage) error {
		return c.reconsumer.LaterAfter(ctx, cm, delay, properties)
	})
}

// DeadLetter publishes the message to the dead letter topic, with the reason, and acknowledges it. It needs a DLQ policy
// or a retry topic. Errors are as with ReconsumeLaterNext.
func (c *Consumer) DeadLetter(ctx context.Context, msg pulsar.Message, reason error) error {
	return c.reconsume(ctx, msg, c.table.Settle, func(ctx context.Context, cm pulsar.ConsumerMessage) error {
		return c.reconsumer.DeadLetter(ctx, cm, reason)
	})
}

// ReconsumeLater is ReconsumeLaterAfter for callers of pulsar.Consumer. It has no error to return: it logs it, counts it in
// Stats, and the message is nacked.
func (c *Consumer) ReconsumeLater(msg pulsar.Message, delay time.Duration) {
	c.ReconsumeLaterWithCustomProperties(msg, nil, delay)
}

// ReconsumeLaterWithCustomProperties is ReconsumeLater with properties added to the message.
func (c *Consumer) ReconsumeLaterWithCustomProperties(msg pulsar.Message, properties map[string]string, delay time.Duration) {
	err := c.ReconsumeLaterAfter(context.Background(), msg, delay, properties)
	if err == nil {
		return
	}
	c.fail("reconsume later", err)
	if id, idErr := idOf(msg); idErr == nil && c.ended.Err() == nil {
		if err := c.nackID(id, msg, nil); err != nil {
			c.fail("nack", err)
		}
	}
}

// reconsume settles a message by publishing it elsewhere and acknowledging its newest delivery.
func (c *Consumer) reconsume(ctx context.Context, msg pulsar.Message, start settleFunc,
	publish func(context.Context, pulsar.ConsumerMessage) error) error {
	id, err := idOf(msg)
	if err != nil {
		return err
	}
	if c.reconsumer == nil {
		return ErrNoRetryTopic
	}
	if ctx == nil {
		ctx = context.Background()
	}
	if c.ended.Err() != nil {
		return ErrClosed
	}
	s, standing, err := c.startSettling(ctx, id, start)
	if err != nil {
		return err
	}
	if standing != delivery.Unsettled {
		c.endCall()
		return fmt.Errorf("%w: %v", ErrNotHeld, id)
	}
	err = errPanicked
	defer func() { c.finishSettling(&s, err) }()
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	defer context.AfterFunc(c.ended, func() { cancel(ErrClosed) })()
	err = publish(ctx, pulsar.ConsumerMessage{Consumer: s.Consumer, Message: identified{msg, s.ID, s.Count}})
	if err != nil && c.ended.Err() != nil && !errors.Is(err, ErrClosed) {
		err = fmt.Errorf("%w: %w", ErrClosed, err)
	}
	return err
}

// isDead reports whether a message that is about to be handed out was delivered too often already. If so it is with whoever
// publishes dead letters from now on.
func (c *Consumer) isDead(cm pulsar.ConsumerMessage) bool {
	if c.maxDeliveries == 0 {
		return false
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	count, ok := c.table.Count(cm.ID())
	if !ok || count < c.maxDeliveries {
		return false
	}
	c.start(&c.dead, func() { c.publishDeadLetter(cm, count) })
	return true
}

// publishDeadLetter gives up on a message. If that fails the message is nacked, to be tried again.
func (c *Consumer) publishDeadLetter(cm pulsar.ConsumerMessage, count uint32) {
	err := c.DeadLetter(c.ended, cm.Message, fmt.Errorf("delivered %d times and not acknowledged", count))
	if err == nil || errors.Is(err, ErrNotHeld) || c.ended.Err() != nil {
		return
	}
	c.fail("dead letter", err, "message", cm.ID())
	c.nack(cm.ID(), nil, nil)
}

// moveToRetryTopic moves a message that was nacked at a redelivery count to the retry topic, unless it came back meanwhile.
// If that fails it waits here, as it does already.
func (c *Consumer) moveToRetryTopic(msg pulsar.Message, count uint32, until time.Time) {
	waiting := func(id pulsar.MessageID) (delivery.Settling, delivery.Standing) {
		return c.table.SettleWaiting(id, count)
	}
	err := c.reconsume(c.ended, msg, waiting, func(ctx context.Context, cm pulsar.ConsumerMessage) error {
		return c.reconsumer.LaterCounted(ctx, cm, time.Until(until))
	})
	if err != nil && !errors.Is(err, ErrNotHeld) && c.ended.Err() == nil {
		c.fail("moving a nacked message to the retry topic", err, "message", msg.ID())
	}
}

// chores are done one after the other by a goroutine that lives while there are any: what may wait for the broker must not
// hold up who receives.
type chores struct {
	todo []func()
	busy bool
}

// start adds a chore. The caller holds mu.
func (c *Consumer) start(ch *chores, chore func()) {
	if ch.todo = append(ch.todo, chore); !ch.busy && c.ended.Err() == nil {
		ch.busy = true
		c.work.Go(func() { c.drain(ch) })
	}
}

func (c *Consumer) drain(ch *chores) {
	for {
		c.mu.Lock()
		if len(ch.todo) == 0 || c.ended.Err() != nil {
			ch.todo, ch.busy = nil, false
			c.mu.Unlock()
			return
		}
		chore := ch.todo[0] // one by one: a seek ends those that are left
		ch.todo = ch.todo[1:]
		c.mu.Unlock()
		chore()
	}
}
