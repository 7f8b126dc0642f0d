package redelivery

import (
	"log/slog"
	"time"

	"github.com/apache/pulsar-client-go/pulsar"

	"github.com/pulsar-redelivery/redelivery/internal/partition"
	"github.com/pulsar-redelivery/redelivery/internal/publishing"
	"github.com/pulsar-redelivery/redelivery/internal/topicname"
)

// event returns an Event about a message.
func (c *Consumer) event(topic string, id pulsar.MessageID, msg pulsar.Message) Event {
	return Event{c, topic, c.options.Subscription, id, msg}
}

// tell calls a function of observers, if there is one, about a message that the application does not get.
func (c *Consumer) tell(observe func(Event), cm pulsar.ConsumerMessage) {
	if observe != nil {
		c.told.add(c, func() { observe(c.event(cm.Topic(), cm.ID(), cm.Message)) })
	}
}

// deliveredEvent counts a delivery, and says why the message came.
func (c *Consumer) deliveredEvent(d *partition.Delivery, msg pulsar.Message) (e Delivered) {
	if d.Count > 0 && d.Cause != partition.NoCause {
		c.redelivered.Add(1)
		if !d.FromMemory && d.Due > 0 && c.now()-d.Due > time.Second {
			c.late.Add(1)
		}
	}
	if c.observer.Delivered == nil {
		return e
	}
	body := d.Body.(pulsar.Message)
	e.Event, e.Count = c.event(body.Topic(), msg.ID(), msg), d.Count
	if d.Cause != partition.NoCause {
		e.Due = c.start.Add(d.Due)
	}
	switch {
	case d.Cause == partition.Nacked:
		e.Cause = CauseNack
	case d.Cause == partition.TimedOut:
		e.Cause = CauseTimeout
	case c.publisher.isRetry(body):
		e.Cause = CauseRetryTopic
		if delay, ok := publishing.DelayTime(body); ok {
			e.Due = body.PublishTime().Add(min(delay, maxDelay))
		}
	case d.Count > 0:
		e.Cause = CauseReconnect
	}
	return e
}

// delivered reports that the application has a message now.
func (c *Consumer) delivered(e Delivered) {
	if c.observer.Delivered == nil {
		return
	}
	if !e.Due.IsZero() {
		e.Lateness = time.Since(e.Due)
	}
	c.observer.Delivered(e)
}

// settledEvent begins an event about a message that the application had until then.
func (c *Consumer) settledEvent(d *partition.Delivery, msg pulsar.Message, outcome Outcome, until time.Duration) Settled {
	id, _ := d.Object.(pulsar.MessageID)
	e := Settled{Event: c.event(d.ID.Topic, id, msg), Outcome: outcome, Attempts: d.Count + 1}
	switch {
	case !c.observer.timed:
	case d.Had > 0:
		e.Duration = d.Had
	case d.Since > 0:
		e.Duration = max(0, until-d.Since) // it may have been taken while its acknowledgement waited
	}
	return e
}

// published reports that a message was published elsewhere, or could not be.
func (c *Consumer) published(d *partition.Delivery, x leaver, note *publishing.Note, began time.Duration, err error) {
	e := c.settledEvent(d, x.msg, Reconsumed, began)
	e.Attempts, e.Delay, e.Err, e.Took = x.attempts, note.Delay, err, c.now()-began
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
			c.log(level, what, append(attrs, "reason", e.Reason, "error_type", publishing.TypeName(e.Why), "error", c.textOf(e.Why))...)
		}
	}
	if c.observer.Settled != nil {
		c.observer.Settled(e)
	}
}
