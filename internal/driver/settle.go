package driver

import (
	"context"
	"errors"
	"time"

	"github.com/apache/pulsar-client-go/pulsar"

	"github.com/pulsar-redelivery/redelivery/internal/ledger"
)

// Ack acknowledges a message.
func (x *Driver) Ack(msg pulsar.Message) error {
	n, err := x.nameOf(msg)
	if err != nil {
		return err
	}
	return x.settle(n, msg, final, pulsar.Consumer.AckID)
}

// AckID is Ack by message id.
func (x *Driver) AckID(id pulsar.MessageID) error {
	if err := checkID(id); err != nil {
		return err
	}
	return x.settle(ledger.Name{ID: id}, nil, final, pulsar.Consumer.AckID)
}

// AckWithTxn acknowledges a message in a transaction.
func (x *Driver) AckWithTxn(msg pulsar.Message, txn pulsar.Transaction) error {
	n, err := x.nameOf(msg)
	if err != nil {
		return err
	}
	if txn == nil {
		return errors.New("redelivery: transaction is nil, want a pulsar.Transaction")
	}
	return x.settle(n, msg, undecided, func(consumer pulsar.Consumer, id pulsar.MessageID) error {
		return consumer.AckWithTxn(identified{msg, id, countOf(msg)}, txn)
	})
}

// What an acknowledgement that succeeded means for a message.
const (
	final     = false
	undecided = true // a transaction decides, so a copy that comes later is to be handed out
)

// settle takes a message out of redelivery by acknowledging its newest delivery: what was acknowledged of an older one
// does not count towards a batch.
func (x *Driver) settle(n ledger.Name, msg pulsar.Message, inTransaction bool,
	ack func(pulsar.Consumer, pulsar.MessageID) error) (err error) {
	if !x.calls.Enter() {
		return ErrClosed
	}
	var s ledger.Settling
	if x.observer.Settled != nil {
		began := x.now()
		defer func() { x.acked(began, n, msg, &s, err) }()
	}
	defer x.calls.Leave()
	switch x.ledger.Settle(n, &s) {
	case ledger.Settled:
		return nil
	case ledger.Unknown:
		return ack(x.inner, n.ID)
	default: // it is being settled now, by another call too perhaps
	}
	s.Undecided = inTransaction
	err = errPanicked
	if len(x.hooks.of) > 0 {
		defer x.hooks.postpone(s.ID)()
	}
	defer func() { x.finishSettling(&s, err) }()
	err = ack(s.Consumer, s.ID)
	return err
}

// errPanicked is the outcome of what did not return: it calls interceptors and policies, which are not our code.
var errPanicked = errors.New("panicked")

// finishSettling ends what Ledger.Settle began. A newer delivery, if one came meanwhile, is acknowledged too: if that fails
// a copy will come, and be swallowed.
func (x *Driver) finishSettling(s *ledger.Settling, err error) {
	if err != nil {
		x.ledger.NotSettled(s)
	} else if again := x.ledger.Settled(s); again != nil {
		x.ackAgain("a newer delivery", s.Consumer, ledger.Name{ID: again, Topic: s.Topic}, minAckPause)
	}
}

// ackAgain acknowledges another delivery of a message that is settled. Nobody waits for that, so that a failure is logged and, but for a
// panic of an interceptor, which is told of what was acknowledged, tried again: what the broker has no acknowledgement of comes with
// the next connection.
func (x *Driver) ackAgain(what string, consumer pulsar.Consumer, n ledger.Name, pause time.Duration) {
	x.safely(func() {
		err := errPanicked
		defer func() {
			try := !errors.Is(err, errPanicked) && pause <= maxAckPause && x.life.ended.Err() == nil
			if again := x.ledger.AckedAgain(n, err, try); again != nil {
				n.ID = again
				time.AfterFunc(pause, func() {
					x.start(&x.swallows, func(context.Context) {
						if x.ledger.IsAcking(n) { // else the broker sends it again
							x.ackAgain(what, consumer, n, 2*pause)
						}
					})
				})
			}
		}()
		err = x.call(func() error { return consumer.AckID(n.ID) })
		if err != nil && x.life.ended.Err() == nil {
			x.Fail("ack", "acknowledging "+what, err, "message", n.ID)
		}
	})
}

// minAckPause is how long the next try of an acknowledgement that nobody waits for is put off, each time for twice as long, up to
// maxAckPause.
const minAckPause, maxAckPause = time.Second, 32 * time.Second

// AckCumulative acknowledges all messages of a partition up to and including this one.
func (x *Driver) AckCumulative(msg pulsar.Message) error {
	n, err := x.nameOf(msg)
	if err != nil {
		return err
	}
	return x.ackCumulative(n)
}

// AckIDCumulative is AckCumulative by message id.
func (x *Driver) AckIDCumulative(id pulsar.MessageID) error {
	if err := checkID(id); err != nil {
		return err
	}
	return x.ackCumulative(ledger.Name{ID: id})
}

func (x *Driver) ackCumulative(n ledger.Name) error {
	began := x.now()
	ack := pulsar.Consumer.AckIDCumulative
	for consumer, id := x.ledger.Newest(n); id != nil; {
		if consumer == nil {
			consumer = x.inner
		}
		if err := x.call(func() error { return ack(consumer, id) }); err != nil {
			return err
		}
		var settled []ledger.Settling
		if id, settled = x.ledger.SettleTo(n, id); id != nil && id.BatchIdx() < 0 { // the whole entry, and what is before it is acknowledged
			ack = pulsar.Consumer.AckID
		}
		for _, s := range settled {
			x.acked(began, n, nil, &s, nil)
		}
	}
	return nil
}
