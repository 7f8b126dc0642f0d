package redelivery

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"time"

	"github.com/apache/pulsar-client-go/pulsar"

	"github.com/pulsar-redelivery/redelivery/internal/ledger"
	"github.com/pulsar-redelivery/redelivery/internal/publishing"
	"github.com/pulsar-redelivery/redelivery/reconsume"
)

// The methods here tell observers, each about what its caller has just done.

// delivery fills in what is told once the application has a message, which may be settled by then.
func (c *Consumer) delivery(e *Delivered, d *ledger.Delivery, msg pulsar.Message) {
	if !c.observed.any {
		return
	}
	due, cause := time.Time{}, ledger.NoCause
	if (d.Hand > 0 || d.Count > 0) && isTracked(d.Message) {
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
		if delay, ok := reconsume.DelayTime(d.Message); ok && delay <= maxDelay {
			e.Due = d.Message.PublishTime().Add(delay)
		}
	case d.Count > 0:
		e.Cause = CauseReconnect
	}
}

// delivered tells that the application has a message now.
func (c *Consumer) delivered(e *Delivered) {
	if !e.Due.IsZero() {
		e.Lateness = time.Since(e.Due)
	}
	for _, f := range c.observed.delivered {
		callObserver(c, f, e)
	}
}

// arrived tells of a copy that the application does not get.
func (c *Consumer) arrived(cm pulsar.ConsumerMessage, v ledger.Verdict) {
	var tell func(Event)
	switch v {
	case ledger.Hold:
		tell = c.observed.Held
	case ledger.Drop:
		tell = c.observed.Dropped
	case ledger.Swallow:
		tell = c.observed.Swallowed
	default: // the application gets it
	}
	if tell != nil {
		c.later(func() { tell(c.event(cm.Topic(), cm.ID(), cm.Message)) })
	}
}

func (c *Consumer) asked(topic string, id pulsar.MessageID) {
	if c.observed.Asked != nil {
		c.later(func() { c.observed.Asked(c.event(topic, id, nil)) })
	}
}

// timedOut is what the ledger tells ack timeouts to; nil if nobody is to be told.
func (c *Consumer) timedOut() func(ledger.Settling) {
	if c.observed.Settled == nil {
		return nil
	}
	return func(s ledger.Settling) {
		e := c.settledEvent(&s, nil, TimedOut)
		c.later(func() { c.observed.Settled(e) })
	}
}

// settledEvent begins what is told of a message.
func (c *Consumer) settledEvent(s *ledger.Settling, msg pulsar.Message, outcome Outcome) Settled {
	e := Settled{Event: c.event(s.Topic, s.ID, msg), Outcome: outcome, Attempts: s.Attempts}
	if s.Since != ledger.NotHad {
		e.Duration = c.ledger.Now() - s.Since
	}
	return e
}

// nacked tells that a nack has begun to wait.
func (c *Consumer) nacked(s ledger.Settling, msg pulsar.Message, delay time.Duration) {
	if c.observed.Settled != nil {
		e := c.settledEvent(&s, msg, Nacked)
		e.Delay = max(0, delay)
		c.observed.Settled(e)
	}
}

// begin returns when something began that is to be told, if somebody wants to know.
func (c *Consumer) begin() (now time.Duration) {
	if c.observed.timed {
		now = c.ledger.Now()
	}
	return now
}

// acked tells that a message was acknowledged, or could not be. One that the ledger does not know is left out, unless its topic is
// non-persistent.
func (c *Consumer) acked(began time.Duration, n ledger.Name, msg pulsar.Message, s *ledger.Settling, err error) {
	if c.observed.Settled == nil {
		return
	}
	if s.Consumer == nil {
		if !strings.HasPrefix(n.Topic, nonPersistent) {
			return
		}
		s.Topic, s.ID, s.Since, s.Attempts = n.Topic, n.ID, ledger.NotHad, 1
	}
	e := Settled{Event: c.event(s.Topic, s.ID, msg), Outcome: Acked, Attempts: s.Attempts, Err: err}
	if c.observed.timed {
		e.Took = c.ledger.Now() - began
		if s.Since != ledger.NotHad {
			e.Duration = max(0, began-s.Since) // it may have been taken while its acknowledgement waited
		}
	}
	for _, f := range c.observed.settled {
		callObserver(c, f, &e)
	}
}

func (c *Consumer) ackedLists(began time.Duration, lists map[pulsar.Consumer]*ackList) {
	for _, l := range lists {
		for _, a := range l.acked {
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
		e := c.settledEvent(&s, msg, Reconsumed)
		e.Delay, e.To, e.Err, e.Took = note.Delay, note.Topic, err, c.ledger.Now()-began
		e.Duration = max(0, e.Duration-e.Took)
		if note.Dead {
			e.Outcome, e.Reason, e.Why = DeadLettered, Reason(note.Reason), note.Why
			if err == nil {
				c.log(slog.LevelInfo, "dead letter", "topic", e.Topic, "message", e.ID, "attempts", e.Attempts, "to", e.To,
					"reason", e.Reason.String(), "error_type", fmt.Sprintf("%T", e.Why)) // what it says may quote the payload
			}
		}
		if c.observed.Settled != nil {
			c.observed.Settled(e)
		}
	}
}

// failed tells of what could not be returned.
func (c *Consumer) failed(operation string, err error) {
	if c.observed.Failed != nil {
		c.later(func() { c.observed.Failed(Failed{c, c.observed.subscription, operation, err}) })
	}
}

// logDecisions returns an Observer that logs each decision, if the logger is for that: what is to be logged has to be known
// when a message is delivered.
func (c *Consumer) logDecisions() (o Observer, wanted bool) {
	if !c.settings.logger.Enabled(context.Background(), slog.LevelDebug) {
		return o, false
	}
	log := func(what string, e Event, attrs ...any) {
		c.log(slog.LevelDebug, what, append([]any{"topic", e.Topic, "message", e.ID}, attrs...)...)
	}
	copied := func(what string) func(Event) { return func(e Event) { log(what, e) } }
	return Observer{
		Delivered: func(e Delivered) {
			log("delivered", e.Event, "redelivery", e.Count, "cause", e.Cause.String(), "late", e.Lateness)
		},
		Settled: func(e Settled) {
			if e.Outcome != DeadLettered || e.Err != nil { // else it was logged
				log(e.Outcome.String(), e.Event, "attempts", e.Attempts, "delay", e.Delay, "duration", e.Duration, "error", e.Err)
			}
		},
		Held: copied("held"), Dropped: copied("dropped"), Swallowed: copied("swallowed"), Asked: copied("asked"),
	}, true
}
