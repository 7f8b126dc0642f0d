package redelivery

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/apache/pulsar-client-go/pulsar"

	"github.com/pulsar-redelivery/redelivery/internal/ledger"
	"github.com/pulsar-redelivery/redelivery/internal/publishing"
	"github.com/pulsar-redelivery/redelivery/internal/topicname"
)

// tell tells from a goroutine that has nothing else to do.
func (c *Consumer) tell(told func()) {
	if c.life.ended.Err() == nil {
		c.start(&c.observer.told, func(context.Context) { told() })
	}
}

// The methods below tell what their callers have just done.

// deliveredEvent is what is told once the application has a message, which may be settled by then.
func (c *Consumer) deliveredEvent(d *ledger.Delivery, msg pulsar.Message) (e Delivered) {
	if !c.observer.any {
		return e
	}
	due, cause := time.Time{}, ledger.NoCause
	if (d.Hand > 0 || d.Count > 0 || d.Unasked) && d.ID != nil {
		due, cause = c.ledger.Taken(*d)
	}
	e.Event, e.Count, e.Due = c.event(d.Message.Topic(), msg.ID(), msg), d.Count, due
	switch {
	case d.Count == 0 && d.Hand == 0 && c.publisher.retryTopic == "": // most
	case cause == ledger.Nacked:
		e.Cause = CauseNack
	case cause == ledger.TimedOut:
		e.Cause = CauseTimeout
	case c.publisher.isRetry(d.Message):
		e.Cause = CauseRetryTopic
		if delay, ok := publishing.DelayTime(d.Message); ok {
			e.Due = d.Message.PublishTime().Add(min(delay, maxDelay))
		}
	case d.Count > 0:
		e.Cause = CauseReconnect
	}
	return e
}

// delivered tells that the application has a message now.
func (c *Consumer) delivered(e Delivered) {
	if c.observer.Delivered == nil {
		return
	}
	if !e.Due.IsZero() {
		e.Lateness = time.Since(e.Due)
	}
	c.observer.Delivered(e)
}

// arrived tells of a copy that the application does not get.
func (c *Consumer) arrived(cm pulsar.ConsumerMessage, v ledger.Verdict) {
	var tell func(Event)
	switch v {
	case ledger.Keep:
		tell = c.observer.Buffered
	case ledger.Drop:
		tell = c.observer.Dropped
	case ledger.AckDuplicate:
		tell = c.observer.Swallowed
	default: // the application gets it
	}
	if tell != nil {
		c.tell(func() { tell(c.event(cm.Topic(), cm.ID(), cm.Message)) })
	}
}

func (c *Consumer) asked(topic string, id pulsar.MessageID) {
	if c.observer.Asked != nil {
		c.tell(func() { c.observer.Asked(c.event(topic, id, nil)) })
	}
}

// timedOut is what the ledger tells ack timeouts to; nil if nobody is to be told.
func (c *Consumer) timedOut() func(ledger.Settling) {
	if c.observer.Settled == nil && c.attempts == nil {
		return nil
	}
	return func(s ledger.Settling) {
		c.fails(&s, 0, errTimedOut)
		if c.observer.Settled == nil {
			return
		}
		e := c.settledEvent(&s, nil, TimedOut, c.now())
		c.tell(func() { c.observer.Settled(e) })
	}
}

var errTimedOut = errors.New("ack timeout")

// settledEvent begins what is told of a message that the application had until then.
func (c *Consumer) settledEvent(s *ledger.Settling, msg pulsar.Message, outcome Outcome, until time.Duration) Settled {
	e := Settled{Event: c.event(s.Topic, s.ID, msg), Outcome: outcome, Attempts: s.Attempts}
	if e.Duration = s.Had; s.Since != ledger.NotHad {
		e.Duration = max(0, until-s.Since) // it may have been taken while its acknowledgement waited
	}
	return e
}

// nacked tells that a nack, or a snooze, has begun to wait.
func (c *Consumer) nacked(s ledger.Settling, msg pulsar.Message, outcome Outcome, delay time.Duration) {
	if c.observer.Settled != nil {
		e := c.settledEvent(&s, msg, outcome, c.now())
		e.Delay = max(0, delay)
		c.observer.Settled(e)
	}
}

// now is the present moment, if somebody wants to know how long what is told took.
func (c *Consumer) now() (now time.Duration) {
	if c.observer.timed {
		now = c.ledger.Now()
	}
	return now
}

// acked tells that a message was acknowledged, or could not be. One that the ledger does not know is left out, unless its topic is
// non-persistent.
func (c *Consumer) acked(began time.Duration, n ledger.Name, msg pulsar.Message, s *ledger.Settling, err error) {
	if c.observer.Settled == nil || s.Late {
		return
	}
	if s.Consumer == nil {
		if topicname.IsPersistent(n.Topic) {
			return
		}
		s.Topic, s.ID, s.Since, s.Attempts = n.Topic, n.ID, ledger.NotHad, 1
	}
	e := c.settledEvent(s, msg, Acked, began)
	e.Err = err
	if c.observer.timed {
		e.Took = c.ledger.Now() - began
	}
	c.observer.Settled(e)
}

func (c *Consumer) ackedLists(began time.Duration, lists map[pulsar.Consumer]*ackList) {
	for _, l := range lists {
		for _, a := range l.acks {
			c.acked(began, ledger.Name{}, nil, &a.settling, a.err)
		}
	}
}

// publishes returns a context to publish a message with that is being settled, and what to call when that is over, with no call
// of the inner consumer under way.
func (c *Consumer) publishes(ctx context.Context, s ledger.Settling, msg pulsar.Message) (context.Context, func(error)) {
	began := c.ledger.Now()
	ctx, note := publishing.With(ctx)
	return ctx, func(err error) {
		e := c.settledEvent(&s, msg, Reconsumed, began)
		if e.Delay, e.Err, e.Took = note.Delay, err, c.ledger.Now()-began; note.Topic != "" {
			e.To = topicname.Full(note.Topic)
		}
		if note.Dead {
			e.Outcome, e.Reason, e.Why = DeadLettered, Reason(note.Reason), note.Why
			if note.Topic == "" {
				e.Outcome = Discarded
			}
			switch {
			case err != nil:
			case e.Outcome == Discarded:
				c.log(slog.LevelWarn, "a message is discarded", "topic", e.Topic, "message", e.ID, "attempts", e.Attempts, "reason", e.Reason,
					"error_type", publishing.TypeName(e.Why), "error", c.textOf(e.Why))
			default:
				c.log(slog.LevelInfo, "dead letter", "topic", e.Topic, "message", e.ID, "attempts", e.Attempts, "to", e.To,
					"reason", e.Reason, "error_type", publishing.TypeName(e.Why), "error", c.textOf(e.Why))
			}
		}
		if c.observer.Settled != nil {
			c.observer.Settled(e)
		}
	}
}

// failed tells of what could not be returned.
func (c *Consumer) failed(operation string, err error) {
	if c.observer.Failed != nil {
		c.tell(func() { c.tellFailed(operation, err) })
	}
}

func (c *Consumer) tellFailed(operation string, err error) {
	if c.observer.Failed != nil {
		c.observer.Failed(Failed{c, c.observer.subscription, operation, err})
	}
}
