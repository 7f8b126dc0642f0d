package redelivery

import (
	"errors"
	"fmt"
	"time"

	"github.com/apache/pulsar-client-go/pulsar"

	"github.com/pulsar-redelivery/redelivery/internal/delivery"
)

// Ack acknowledges a message. It is final: the message is not handed out again, unless Ack returns an error. A message
// that waits for its redelivery may still be acknowledged, and one that was acknowledged before is no error. After Close it
// returns ErrClosed; with AckWithResponse, what the broker said.
func (c *Consumer) Ack(msg pulsar.Message) error {
	id, err := idOf(msg)
	if err != nil {
		return err
	}
	return c.settle(id, final, pulsar.Consumer.AckID)
}

// AckID is Ack by message id.
func (c *Consumer) AckID(id pulsar.MessageID) error {
	if err := checkID(id); err != nil {
		return err
	}
	return c.settle(id, final, pulsar.Consumer.AckID)
}

// AckWithTxn acknowledges a message in a transaction. Its delay and its ack timeout end; if the transaction is aborted the
// broker sends it again at once, and what the Consumer counted begins anew.
//
// The messages of a batch need EnableBatchIndexAcknowledgment here and at the broker: without, pulsar-client-go sends nothing
// before the last of them, which then takes all with it.
func (c *Consumer) AckWithTxn(msg pulsar.Message, txn pulsar.Transaction) error {
	id, err := idOf(msg)
	if err != nil {
		return err
	}
	if txn == nil {
		return errors.New("redelivery: transaction is nil, want a pulsar.Transaction")
	}
	return c.settle(id, undecided, func(consumer pulsar.Consumer, id pulsar.MessageID) error {
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
func (c *Consumer) settle(id pulsar.MessageID, undecided bool, ack func(pulsar.Consumer, pulsar.MessageID) error) error {
	c.mu.Lock()
	if err := c.begin(); err != nil {
		c.mu.Unlock()
		return err
	}
	s, ok := c.table.Settle(id)
	known := ok || c.table.Knows(id)
	c.mu.Unlock()
	defer c.endCall()
	if !ok {
		if known {
			return nil // settled before
		}
		return ack(c.inner, id)
	}
	s.Undecided = undecided
	err := ack(s.Consumer, s.ID)
	if again := c.settled(s, err); again != nil {
		return ack(s.Consumer, again)
	}
	return err
}

// settled ends what Table.Settle began. It returns the id of a newer delivery, if one came meanwhile.
func (c *Consumer) settled(s delivery.Settling, err error) (again pulsar.MessageID) {
	c.mu.Lock()
	o := c.table.Settled(s, err, time.Now())
	if o.Settled {
		c.untrack(s.Ref, s.Held)
	}
	c.forget()
	wake := c.table.HasNext()
	c.mu.Unlock()
	if wake {
		c.nudge()
	}
	if o.Due {
		c.due([]delivery.Ref{s.Ref})
	}
	return o.Again
}

// AckIDList acknowledges several messages, as Ack does each. With AckWithResponse the error may be a pulsar.AckError, which has the ids that
// were not acknowledged, as they were given here.
func (c *Consumer) AckIDList(ids []pulsar.MessageID) error {
	for i, id := range ids {
		if err := checkID(id); err != nil {
			return fmt.Errorf("%w (%d of %d)", err, i+1, len(ids))
		}
	}
	type list struct {
		given, newest []pulsar.MessageID
		settling      []delivery.Settling
	}
	lists := map[pulsar.Consumer]*list{}
	listOf := func(consumer pulsar.Consumer) *list {
		if lists[consumer] == nil {
			lists[consumer] = &list{}
		}
		return lists[consumer]
	}
	c.mu.Lock()
	if err := c.begin(); err != nil {
		c.mu.Unlock()
		return err
	}
	defer c.endCall()
	for _, id := range ids {
		s, ok := c.table.Settle(id)
		switch {
		case ok:
			l := listOf(s.Consumer)
			l.given, l.newest, l.settling = append(l.given, id), append(l.newest, s.ID), append(l.settling, s)
		case !c.table.Knows(id):
			l := listOf(c.inner)
			l.given, l.newest, l.settling = append(l.given, id), append(l.newest, id), append(l.settling, delivery.Settling{})
		}
	}
	c.mu.Unlock()

	failed := pulsar.AckError{}
	for consumer, l := range lists {
		err := consumer.AckIDList(l.newest)
		var some pulsar.AckError
		isSome := errors.As(err, &some)
		var again []pulsar.MessageID
		for i, s := range l.settling {
			failure := err
			if isSome {
				failure = some[l.newest[i]]
			}
			if failure != nil {
				failed[l.given[i]] = failure
			}
			if s.ID == nil {
				continue
			}
			if newer := c.settled(s, failure); newer != nil {
				again = append(again, newer)
			}
		}
		if len(again) > 0 {
			if err := consumer.AckIDList(again); err != nil {
				c.fail("acknowledging a newer delivery", err)
			}
		}
	}
	if len(failed) == 0 {
		return nil
	}
	return failed
}

// AckCumulative acknowledges all messages of a partition up to and including this one; none of them is redelivered any more.
// It is for Exclusive and Failover: on the other types pulsar-client-go has an error for it.
func (c *Consumer) AckCumulative(msg pulsar.Message) error {
	id, err := idOf(msg)
	if err != nil {
		return err
	}
	return c.ackCumulative(id)
}

// AckIDCumulative is AckCumulative by message id.
func (c *Consumer) AckIDCumulative(id pulsar.MessageID) error {
	if err := checkID(id); err != nil {
		return err
	}
	return c.ackCumulative(id)
}

func (c *Consumer) ackCumulative(id pulsar.MessageID) error {
	c.mu.Lock()
	consumer, newest := c.table.Newest(id)
	c.mu.Unlock()
	if consumer == nil {
		consumer = c.inner
	}
	if err := c.call(func() error { return consumer.AckIDCumulative(newest) }); err != nil {
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, ref := range c.table.SettleTo(id, time.Now()) {
		c.untrack(ref, true)
		c.untrack(ref, false)
	}
	c.forget()
	return nil
}

// untrack ends the measuring of a message that the application held, or that waited. The caller holds mu.
func (c *Consumer) untrack(ref delivery.Ref, held bool) {
	if !held {
		c.nacks.Untrack(ref)
	} else if c.timeouts != nil {
		c.timeouts.Untrack(ref)
	}
}

// forget has the table reminded of what it only remembers for a while. The caller holds mu.
func (c *Consumer) forget() {
	for _, ref := range c.table.Forget {
		c.nacks.TrackFor(ref, delivery.Remember)
	}
	c.table.Forget = c.table.Forget[:0]
}
