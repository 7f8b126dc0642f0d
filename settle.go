package redelivery

import (
	"context"
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
func (c *Consumer) settle(id pulsar.MessageID, inTransaction bool, ack func(pulsar.Consumer, pulsar.MessageID) error) (err error) {
	s, standing, err := c.startSettling(context.Background(), id, c.table.Settle)
	switch {
	case err != nil:
		return err
	case standing == delivery.Settled:
		c.endCall()
		return nil
	case standing == delivery.Unknown:
		defer c.endCall()
		return ack(c.inner, id)
	}
	s.Undecided = inTransaction
	err = errPanicked
	defer func() { c.finishSettling(&s, err) }()
	err = ack(s.Consumer, s.ID)
	return err
}

// settleFunc is one of the table's methods that begin to settle.
type settleFunc func(pulsar.MessageID) (delivery.Settling, delivery.Standing)

// startSettling begins to settle a message, as soon as no other call does. Without an error finishSettling must follow for
// an Unsettled message, endCall for any other.
func (c *Consumer) startSettling(ctx context.Context, id pulsar.MessageID, start settleFunc) (
	s delivery.Settling, standing delivery.Standing, err error) {
	for waited := false; ; waited = true {
		c.mu.Lock()
		if err := c.begin(); err != nil {
			c.mu.Unlock()
			return s, standing, err
		}
		s, standing = start(id)
		if standing != delivery.Busy {
			c.mu.Unlock()
			if waited && standing == delivery.Unknown {
				standing = delivery.Settled // by the other, so that the table let go of it
			}
			return s, standing, nil
		}
		c.callEnded()
		over := c.settling[s.Ref]
		if over == nil {
			over = make(chan struct{})
			c.settling[s.Ref] = over
		}
		c.mu.Unlock()
		select {
		case <-over:
		case <-ctx.Done():
			return s, standing, ctx.Err()
		case <-c.ended.Done():
			return s, standing, ErrClosed
		}
	}
}

// errPanicked is the outcome of what did not return: it calls interceptors and policies, which are not our code.
var errPanicked = errors.New("panicked")

// finishSettling ends what startSettling began. A newer delivery, if one came meanwhile, is acknowledged too: if that fails
// a copy will come, and be swallowed.
func (c *Consumer) finishSettling(s *delivery.Settling, err error) {
	if again := c.settled(s, err, true); again != nil {
		c.ackAgain("a newer delivery", s.Consumer, again)
	}
}

// ackAgain acknowledges another delivery of a message that is settled. Nobody waits for that, so that a failure is logged.
func (c *Consumer) ackAgain(what string, consumer pulsar.Consumer, id pulsar.MessageID) {
	err := c.call(func() error { return consumer.AckID(id) })
	if err != nil && c.ended.Err() == nil {
		c.fail("acknowledging "+what, err, "message", id)
	}
}

// settled ends what Table.Settle began, and the call if it was one of its own. It returns the id of a newer delivery, if one
// came meanwhile.
func (c *Consumer) settled(s *delivery.Settling, err error, endsCall bool) (again pulsar.MessageID) {
	c.mu.Lock()
	o := c.table.Settled(*s, err, time.Now())
	if o.Untrack {
		c.untrack(s.Ref, s.Held)
	}
	if over := c.settling[s.Ref]; over != nil {
		close(over)
		delete(c.settling, s.Ref)
	}
	c.forget()
	wake := c.table.HasNext()
	if endsCall {
		c.callEnded()
	}
	c.mu.Unlock()
	if wake {
		c.nudge()
	}
	if o.Due {
		c.due([]delivery.Ref{s.Ref})
	}
	return o.Again
}

// AckIDList acknowledges several messages, as Ack does each. With AckWithResponse the error may be a pulsar.AckError, which
// has the ids that were not acknowledged, as they were given here.
func (c *Consumer) AckIDList(ids []pulsar.MessageID) error {
	for i, id := range ids {
		if err := checkID(id); err != nil {
			return fmt.Errorf("%w (%d of %d)", err, i+1, len(ids))
		}
	}
	var busy []pulsar.MessageID
	lists := map[pulsar.Consumer][]ackItem{}
	c.mu.Lock()
	if err := c.begin(); err != nil {
		c.mu.Unlock()
		return err
	}
	defer c.endCall()
	for _, id := range ids {
		switch s, standing := c.table.Settle(id); standing {
		case delivery.Unsettled:
			lists[s.Consumer] = append(lists[s.Consumer], ackItem{id, s.ID, s})
		case delivery.Unknown:
			lists[c.inner] = append(lists[c.inner], ackItem{given: id, newest: id})
		case delivery.Busy:
			busy = append(busy, id)
		}
	}
	c.mu.Unlock()

	failed := pulsar.AckError{}
	for consumer, list := range lists {
		c.ackList(consumer, list, failed)
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

// ackItem is a message of AckIDList. Its settling is empty if the table does not know it.
type ackItem struct {
	given, newest pulsar.MessageID
	settling      delivery.Settling
}

// ackList acknowledges messages of one consumer, and notes what failed.
func (c *Consumer) ackList(consumer pulsar.Consumer, list []ackItem, failed pulsar.AckError) {
	newest := make([]pulsar.MessageID, len(list))
	for i, item := range list {
		newest[i] = item.newest
	}
	err := consumer.AckIDList(newest)
	var some pulsar.AckError
	isSome := errors.As(err, &some)
	var again []pulsar.MessageID
	for _, item := range list {
		failure := err
		if isSome {
			failure = some[item.newest]
		}
		if failure != nil {
			failed[item.given] = failure
		}
		if item.settling.ID == nil {
			continue
		}
		if newer := c.settled(&item.settling, failure, false); newer != nil {
			again = append(again, newer)
		}
	}
	if len(again) > 0 {
		if err := consumer.AckIDList(again); err != nil {
			c.fail("acknowledging a newer delivery", err)
		}
	}
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
