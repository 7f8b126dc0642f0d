package driver

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

// observer is who is told, with no lock held.
type observer struct {
	Observer
	told chores // what is told by goroutines that must not wait, or may not be closed by who is told
}

// later tells from a goroutine that has nothing else to do.
func (x *Driver) later(tell func()) {
	if x.life.ended.Err() == nil {
		x.start(&x.observer.told, func(context.Context) { tell() })
	}
}

// The methods below tell what their callers have just done.

// deliveredEvent is what is told once the application has a message, which may be settled by then.
func (x *Driver) deliveredEvent(d ledger.Delivery, msg pulsar.Message) (e Delivered) {
	if !x.observer.Any {
		return e
	}
	due, cause := time.Time{}, ledger.NoCause
	if (d.Hand > 0 || d.Count > 0 || d.Unasked) && d.ID != nil {
		due, cause = x.ledger.Taken(d)
	}
	e.Event, e.Count, e.Due = Event{d.Message.Topic(), msg.ID(), msg}, d.Count, due
	switch {
	case d.Count == 0 && d.Hand == 0 && x.publisher.retryTopic == "": // most
	case cause == ledger.Nacked:
		e.Cause = CauseNack
	case cause == ledger.TimedOut:
		e.Cause = CauseTimeout
	case x.publisher.isRetry(d.Message):
		e.Cause = CauseRetryTopic
		if delay, ok := reconsume.DelayTime(d.Message); ok {
			e.Due = d.Message.PublishTime().Add(min(delay, maxDelay))
		}
	case d.Count > 0:
		e.Cause = CauseReconnect
	}
	return e
}

// delivered tells that the application has a message now.
func (x *Driver) delivered(e Delivered) {
	if x.observer.Delivered == nil {
		return
	}
	if !e.Due.IsZero() {
		e.Lateness = time.Since(e.Due)
	}
	x.observer.Delivered(e)
}

// arrived tells of a copy that the application does not get.
func (x *Driver) arrived(cm pulsar.ConsumerMessage, v ledger.Verdict) {
	var tell func(Event)
	switch v {
	case ledger.Hold:
		tell = x.observer.Held
	case ledger.Drop:
		tell = x.observer.Dropped
	case ledger.AckDuplicate:
		tell = x.observer.Swallowed
	default: // the application gets it
	}
	if tell != nil {
		x.later(func() { tell(Event{cm.Topic(), cm.ID(), cm.Message}) })
	}
}

func (x *Driver) asked(topic string, id pulsar.MessageID) {
	if x.observer.Asked != nil {
		x.later(func() { x.observer.Asked(Event{topic, id, nil}) })
	}
}

// timedOut is what the ledger tells ack timeouts to; nil if nobody is to be told.
func (x *Driver) timedOut() func(ledger.Settling) {
	if x.observer.Settled == nil {
		return nil
	}
	return func(s ledger.Settling) {
		e := x.settledEvent(&s, nil, TimedOut, x.now())
		x.later(func() { x.observer.Settled(e) })
	}
}

// settledEvent begins what is told of a message that the application had until then.
func (x *Driver) settledEvent(s *ledger.Settling, msg pulsar.Message, outcome Outcome, until time.Duration) Settled {
	e := Settled{Event: Event{s.Topic, s.ID, msg}, Outcome: outcome, Attempts: s.Attempts}
	if s.Since != ledger.NotHad {
		e.Duration = max(0, until-s.Since) // it may have been taken while its acknowledgement waited
	}
	return e
}

// nacked tells that a nack has begun to wait.
func (x *Driver) nacked(s ledger.Settling, msg pulsar.Message, delay time.Duration) {
	if x.observer.Settled != nil {
		e := x.settledEvent(&s, msg, Nacked, x.now())
		e.Delay = max(0, delay)
		x.observer.Settled(e)
	}
}

// now is the present moment, if somebody wants to know how long what is told took.
func (x *Driver) now() (now time.Duration) {
	if x.observer.Timed {
		now = x.ledger.Now()
	}
	return now
}

// acked tells that a message was acknowledged, or could not be. One that the ledger does not know is left out, unless its topic is
// non-persistent.
func (x *Driver) acked(began time.Duration, n ledger.Name, msg pulsar.Message, s *ledger.Settling, err error) {
	if x.observer.Settled == nil {
		return
	}
	if s.Consumer == nil {
		if !strings.HasPrefix(n.Topic, nonPersistent) {
			return
		}
		s.Topic, s.ID, s.Since, s.Attempts = n.Topic, n.ID, ledger.NotHad, 1
	}
	e := x.settledEvent(s, msg, Acked, began)
	e.Err = err
	if x.observer.Timed {
		e.Took = x.ledger.Now() - began
	}
	x.observer.Settled(e)
}

func (x *Driver) ackedLists(began time.Duration, lists map[pulsar.Consumer]*ackList) {
	for _, l := range lists {
		for _, a := range l.acks {
			x.acked(began, ledger.Name{}, nil, &a.settling, a.err)
		}
	}
}

// publishes returns a context to publish a message with that is being settled, and what to call when that is over, with no call
// of the inner consumer under way.
func (x *Driver) publishes(ctx context.Context, s ledger.Settling, msg pulsar.Message) (context.Context, func(error)) {
	began := x.ledger.Now()
	ctx, note := publishing.With(ctx)
	return ctx, func(err error) {
		e := x.settledEvent(&s, msg, Reconsumed, began)
		e.Delay, e.To, e.Err, e.Took = note.Delay, note.Topic, err, x.ledger.Now()-began
		if note.Dead {
			e.Outcome, e.Reason, e.Why = DeadLettered, Reason(note.Reason), note.Why
			if err == nil {
				x.Log(slog.LevelInfo, "dead letter", "topic", e.Topic, "message", e.ID, "attempts", e.Attempts, "to", e.To,
					"reason", e.Reason.String(), "error_type", fmt.Sprintf("%T", e.Why)) // what it says may quote the payload
			}
		}
		if x.observer.Settled != nil {
			x.observer.Settled(e)
		}
	}
}

// failed tells of what could not be returned.
func (x *Driver) failed(operation string, err error) {
	if x.observer.Failed != nil {
		x.later(func() { x.observer.Failed(Failed{operation, err}) })
	}
}
