package random

import (
	"context"
	"errors"
	"time"

	"github.com/apache/pulsar-client-go/pulsar"

	"github.com/pulsar-redelivery/redelivery"
)

// settle acknowledges a message in a random way.
func (a *randomApp) settle(d *delivery) {
	switch way := a.rng.IntN(6); {
	case a.Wide && a.MaxDeliveries > 0 && a.pairs.IntN(10) == 0:
		a.refuse(d)
	case a.Cumulative && way < 2:
		a.ackTo(d)
	case way == 2 && len(a.all()) == 1 && !a.Retry:
		id, err := pulsar.DeserializeMessageID(d.msg.ID().Serialize())
		if err != nil {
			a.fault("%v", err)
			return
		}
		a.ack(d, func() error { return a.c.AckID(id) })
	case way == 3:
		a.ack(d, func() error { return a.c.AckID(d.msg.ID()) })
		a.ack(d, func() error { return a.c.Ack(a.wrap(d.msg)) })
	case way == 4:
		a.list = append(a.list, d)
		if len(a.list) == 5 {
			a.flush()
		}
	default:
		a.ack(d, func() error { return a.c.Ack(a.wrap(d.msg)) })
	}
}

func (a *randomApp) settled(d *delivery, err error) {
	if err == nil {
		a.mu.Lock()
		defer a.mu.Unlock()
		a.settleLocked(d.f)
		// a later delivery may have moved the message to the retry topic
		d.f.twice = d.f.twice || a.Retry && d.f.handled != d.hand
		return
	}
	if !errors.Is(err, redelivery.ErrClosed) { // the message must come again
		if a.Wide && !a.Response && a.Unloads == 0 {
			a.fault("settling message %d: %v", d.n, err)
		}
		a.mu.Lock()
		d.f.due = time.Time{}
		a.mu.Unlock()
		a.c.Nack(d.msg)
	}
}

// settleLocked records that a message is settled. The caller holds mu.
func (a *randomApp) settleLocked(f *fate) {
	if f.settled.IsZero() {
		f.settled, f.takes, f.due = time.Now(), a.takes, time.Time{}
	}
}

// mayBeBuffered reports whether a copy of a settled message may still be in the application's channel.
func (r *randomRun) mayBeBuffered(f *fate) bool {
	return r.Buffer > 0 && r.takes-f.takes <= r.Buffer+r.Workers+1
}

func (a *randomApp) ack(d *delivery, call func() error) { a.settled(d, a.calls("Ack", call)) }

// refuse makes a message a dead letter.
func (a *randomApp) refuse(d *delivery) {
	msg := a.wrap(d.msg)
	if a.Wrap == hollow && a.MemoryLimit >= 0 { // the Consumer might not have the message to publish
		msg = d.msg
	}
	err := a.calls("DeadLetter", func() error {
		return a.c.DeadLetter(context.Background(), msg, errors.New("refused"))
	})
	if errors.Is(err, redelivery.ErrNotInFlight) { // the message has timed out, or is settled
		a.ack(d, func() error { return a.c.Ack(d.msg) })
		return
	}
	if err == nil {
		a.mu.Lock()
		d.f.refused = true
		a.mu.Unlock()
	}
	a.settled(d, err)
}

// flush acknowledges the messages in list together.
func (a *randomApp) flush() {
	list := a.list
	a.list = nil
	if len(list) == 0 {
		return
	}
	var ids []pulsar.MessageID
	for _, d := range list {
		ids = append(ids, d.msg.ID())
	}
	err := a.calls("AckIDList", func() error { return a.c.AckIDList(ids) })
	var failed pulsar.AckError
	some := errors.As(err, &failed)
	for i, d := range list {
		if err := err; some {
			a.settled(d, failed[ids[i]])
		} else {
			a.settled(d, err)
		}
	}
}
