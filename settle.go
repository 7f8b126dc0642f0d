package redelivery

import (
	"context"
	"errors"
	"fmt"

	"github.com/apache/pulsar-client-go/pulsar"

	"github.com/pulsar-redelivery/redelivery/internal/ledger"
)

// Ack acknowledges a message. It is final: unless Ack returns an error, the message is not handed out again. A message that waits
// for its redelivery may still be acknowledged. Acknowledging a message twice is no error. After Close, Ack returns ErrClosed.
// With AckWithResponse in pulsar.ConsumerOptions it waits for the broker and returns the broker's error.
func (c *Consumer) Ack(msg pulsar.Message) error {
	n, err := c.nameOf(msg)
	if err != nil {
		return err
	}
	return c.settle(n, msg, final, pulsar.Consumer.AckID)
}

// AckID is Ack by message id.
func (c *Consumer) AckID(id pulsar.MessageID) error {
	if err := checkID(id); err != nil {
		return err
	}
	return c.settle(ledger.Name{ID: id}, nil, final, pulsar.Consumer.AckID)
}

// AckWithTxn acknowledges a message in a transaction. The message's delay and ack timeout end. If the transaction is aborted, the
// broker sends the message again at once, and the Consumer's own redelivery count starts again.
//
// For messages of a batch, enable batch-index acknowledgement in pulsar.ConsumerOptions and at the broker. Without it,
// pulsar-client-go sends nothing until the last message of the batch is acknowledged, and that one's transaction acknowledges
// them all.
func (c *Consumer) AckWithTxn(msg pulsar.Message, txn pulsar.Transaction) error {
	n, err := c.nameOf(msg)
	if err != nil {
		return err
	}
	if txn == nil {
		return errors.New("redelivery: transaction is nil, want a pulsar.Transaction")
	}
	return c.settle(n, msg, undecided, func(consumer pulsar.Consumer, id pulsar.MessageID) error {
		return consumer.AckWithTxn(identified{msg, id, msg.RedeliveryCount()}, txn)
	})
}

// What an acknowledgement that succeeded means for a message.
const (
	final     = false
	undecided = true // a transaction decides, so a copy that comes later is to be handed out
)

// settle takes a message out of redelivery by acknowledging its newest delivery: what was acknowledged of an older one
// does not count towards a batch.
func (c *Consumer) settle(n ledger.Name, msg pulsar.Message, inTransaction bool,
	ack func(pulsar.Consumer, pulsar.MessageID) error) (err error) {
	if !c.calls.Enter() {
		return ErrClosed
	}
	var s ledger.Settling
	if c.observed.Settled != nil {
		began := c.begin()
		defer func() { c.acked(began, n, msg, &s, err) }()
	}
	defer c.calls.Leave()
	var standing ledger.Standing
	s, standing, _ = c.ledger.Settle(context.Background(), c.life.ended, n)
	switch standing {
	case ledger.Busy:
		return ErrClosed
	case ledger.Settled:
		return nil
	case ledger.Unknown:
		return ack(c.inner, n.ID)
	default: // Unsettled: it is now settling
	}
	s.Undecided = inTransaction
	err = errPanicked
	defer func() { c.finishSettling(&s, err) }()
	err = ack(s.Consumer, s.ID)
	return err
}

// errPanicked is the outcome of what did not return: it calls interceptors and policies, which are not our code.
var errPanicked = errors.New("panicked")

// finishSettling ends what Ledger.Settle began. A newer delivery, if one came meanwhile, is acknowledged too: if that fails
// a copy will come, and be swallowed.
func (c *Consumer) finishSettling(s *ledger.Settling, err error) {
	if again := c.ledger.Settled(*s, err); again != nil {
		c.ackAgain("a newer delivery", s.Consumer, again)
	}
}

// ackAgain acknowledges another delivery of a message that is settled. Nobody waits for that, so that a failure is logged, and a panic
// of an interceptor: others may wait for what else its caller settles.
func (c *Consumer) ackAgain(what string, consumer pulsar.Consumer, id pulsar.MessageID) {
	c.safely(func() {
		err := c.call(func() error { return consumer.AckID(id) })
		if err != nil && c.life.ended.Err() == nil {
			c.fail("ack", "acknowledging "+what, err, "message", id)
		}
	})
}

// AckIDList acknowledges several messages, each as Ack does. The error may be a pulsar.AckError. It maps each id of ids that was
// not acknowledged to its error: the broker's with AckWithResponse, ErrClosed after Close.
func (c *Consumer) AckIDList(ids []pulsar.MessageID) error {
	for i, id := range ids {
		if err := checkID(id); err != nil {
			return fmt.Errorf("%w (%d of %d)", err, i+1, len(ids))
		}
	}
	if !c.calls.Enter() {
		return notAcked(ids)
	}
	lists := map[pulsar.Consumer]*ackList{}
	if c.observed.Settled != nil {
		began := c.begin()
		defer func() { c.ackedLists(began, lists) }()
	}
	defer c.calls.Leave()
	var busy []pulsar.MessageID
	list := func(consumer pulsar.Consumer) *ackList {
		if lists[consumer] == nil {
			lists[consumer] = &ackList{}
		}
		return lists[consumer]
	}
	defer func() {
		for _, l := range lists { // those that a panic left
			l.finish(c, errPanicked)
		}
	}()
	for _, id := range ids {
		switch s, standing := c.ledger.TrySettle(ledger.Name{ID: id}); standing {
		case ledger.Unsettled:
			list(s.Consumer).add(id, s)
		case ledger.Unknown:
			list(c.inner).add(id, ledger.Settling{ID: id})
		case ledger.Busy:
			busy = append(busy, id)
		default: // Settled before
		}
	}
	failed := pulsar.AckError{}
	for consumer, l := range lists {
		l.errs = l.ack(consumer)
		for i, err := range l.errs {
			if err != nil {
				failed[l.given[i]] = err
			}
		}
		l.finish(c, nil)
	}
	for _, id := range busy {
		if err := c.AckID(id); err != nil {
			failed[id] = err
		} else {
			delete(failed, id)
		}
	}
	if len(failed) == 0 {
		return nil
	}
	return failed
}

// notAcked is the error of AckIDList after Close.
func notAcked(ids []pulsar.MessageID) error {
	if len(ids) == 0 {
		return ErrClosed
	}
	failed := pulsar.AckError{}
	for _, id := range ids {
		failed[id] = ackOnClosed{}
	}
	return failed
}

// ackOnClosed is ErrClosed in the words of upstream.
type ackOnClosed struct{}

func (ackOnClosed) Error() string { return "consumer state is closed" }
func (ackOnClosed) Unwrap() error { return ErrClosed }

// ackList has the messages of AckIDList that are of one consumer.
type ackList struct {
	given     []pulsar.MessageID
	settlings []ledger.Settling // without a Consumer if the ledger does not know the message
	errs      []error
	acked     []acked // for observers
}

type acked struct {
	settling ledger.Settling
	err      error
}

func (l *ackList) add(given pulsar.MessageID, s ledger.Settling) {
	l.given, l.settlings = append(l.given, given), append(l.settlings, s)
}

// ack acknowledges them and returns an error for each.
func (l *ackList) ack(consumer pulsar.Consumer) []error {
	newest, errs := make([]pulsar.MessageID, len(l.given)), make([]error, len(l.given))
	for i, s := range l.settlings {
		newest[i] = s.ID
	}
	err := consumer.AckIDList(newest)
	var some pulsar.AckError
	isSome := errors.As(err, &some)
	for i, id := range newest {
		if errs[i] = err; isSome {
			errs[i] = some[id]
		}
	}
	return errs
}

// finish ends the settlings that have not ended yet, with err where no other error is known.
func (l *ackList) finish(c *Consumer, err error) {
	settlings := l.settlings
	l.settlings = nil
	for i := range settlings {
		if settlings[i].Consumer == nil {
			continue
		}
		if l.errs != nil {
			err = l.errs[i]
		}
		c.finishSettling(&settlings[i], err)
		if c.observed.Settled != nil {
			l.acked = append(l.acked, acked{settlings[i], err})
		}
	}
}

// AckCumulative acknowledges all messages of a partition up to and including this one. None of them comes back. It is for
// Exclusive and Failover: on the other types it returns pulsar-client-go's error.
func (c *Consumer) AckCumulative(msg pulsar.Message) error {
	n, err := c.nameOf(msg)
	if err != nil {
		return err
	}
	return c.ackCumulative(n)
}

// AckIDCumulative is AckCumulative by message id.
func (c *Consumer) AckIDCumulative(id pulsar.MessageID) error {
	if err := checkID(id); err != nil {
		return err
	}
	return c.ackCumulative(ledger.Name{ID: id})
}

func (c *Consumer) ackCumulative(n ledger.Name) error {
	began := c.begin()
	for consumer, id := c.ledger.Newest(n); id != nil; {
		if consumer == nil {
			consumer = c.inner
		}
		if err := c.call(func() error { return consumer.AckIDCumulative(id) }); err != nil {
			return err
		}
		var settled []ledger.Settling
		id, settled = c.ledger.SettleTo(n, id)
		for _, s := range settled {
			c.acked(began, n, nil, &s, nil)
		}
	}
	return nil
}
