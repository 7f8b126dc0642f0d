package redelivery

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/apache/pulsar-client-go/pulsar"

	"github.com/pulsar-redelivery/redelivery/internal/ledger"
)

// Ack acknowledges a message. It is final: unless Ack returns an error, the message is not delivered again. A message that waits for its
// redelivery may still be acknowledged. Acknowledging a message twice is not an error. After Close, Ack returns ErrClosed. With
// AckWithResponse in pulsar.ConsumerOptions it waits for the broker and returns the broker's error.
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
// That does not hold for messages of a batch: if its other messages are acknowledged, the broker does not send those of an aborted
// transaction again, with batch-index acknowledgement or without, to plain consumers neither. Producers of messages that are acknowledged
// in transactions should set DisableBatching. Without batch-index acknowledgement, pulsar-client-go sends nothing until the last message of
// the batch is acknowledged; then the transaction of that last message acknowledges the whole batch. With it (EnableBatchIndexAcknowledgment)
// the broker refuses the last message of a batch of which others were acknowledged in a transaction, and the transaction cannot end. So
// Subscribe does not switch it on if the client has EnableTransaction. Where Subscribe and SubscribeWith do not see that, because the client is
// wrapped or not known, use WithoutBatchIndexAcks: else AckWithTxn returns an error for messages of batches.
func (c *Consumer) AckWithTxn(msg pulsar.Message, txn pulsar.Transaction) error {
	n, err := c.nameOf(msg)
	if err != nil {
		return err
	}
	if txn == nil {
		return errors.New("redelivery: transaction is nil, want a pulsar.Transaction")
	}
	if size := msg.ID().BatchSize(); c.settings.addsIndexAcks && size > 1 {
		return fmt.Errorf("redelivery: AckWithTxn: message %v is of a batch of %d, want WithoutBatchIndexAcks or a client with EnableTransaction", msg.ID(), size)
	}
	return c.settle(n, msg, undecided, func(consumer pulsar.Consumer, id pulsar.MessageID) (err error) {
		defer func() { // upstream's for a transaction that is not its own
			if v := recover(); v != nil {
				err = fmt.Errorf("redelivery: AckWithTxn: %v", v)
			}
		}()
		return consumer.AckWithTxn(identified{msg, id, countOf(msg)}, txn)
	})
}

// What an acknowledgement that succeeded means for a message.
const (
	final     = false
	undecided = true // a transaction decides: a copy that comes later is delivered
)

// settle takes a message out of redelivery by acknowledging its newest delivery: what was acknowledged of an older one
// does not count towards a batch.
func (c *Consumer) settle(n ledger.Name, msg pulsar.Message, inTransaction bool,
	ack func(pulsar.Consumer, pulsar.MessageID) error) (err error) {
	s := ledger.Settling{Undecided: inTransaction}
	if c.observer.Settled != nil {
		began := c.now()
		defer func() { c.acked(began, n, msg, &s, err) }()
	}
	return c.acknowledge(n, &s, ack)
}

// acknowledge is settle for those who tell of it.
func (c *Consumer) acknowledge(n ledger.Name, s *ledger.Settling, ack func(pulsar.Consumer, pulsar.MessageID) error) (err error) {
	if err := c.enter(); err != nil {
		return err
	}
	defer c.calls.Leave()
	switch c.ledger.Settle(n, s) {
	case ledger.Settled:
		return nil
	case ledger.Unknown:
		if err = ack(c.current(), n.ID); err == nil && !s.Undecided {
			c.ledger.SettleWhole(n)
		}
		return err
	default: // it is being settled now, by another call too perhaps
	}
	if len(c.hooks.of) > 0 {
		defer c.hooks.postpone(s.ID)()
	}
	err = errPanicked
	defer func() { c.finishSettling(s, err, ack) }()
	err = ack(s.Consumer, s.ToAck)
	return err
}

// errPanicked is the outcome of what did not return: it calls interceptors and policies, which are not our code.
var errPanicked = errors.New("panicked")

// finishSettling ends what Ledger.Settle began, within the call that settled the message: Close waits for that. A newer delivery, if one came
// meanwhile, is acknowledged too, by ack: if that fails a copy will come, and be swallowed.
func (c *Consumer) finishSettling(s *ledger.Settling, err error, ack func(pulsar.Consumer, pulsar.MessageID) error) {
	if err != nil {
		c.ledger.NotSettled(s)
	} else if again := c.ledger.Settled(s); again != nil {
		c.ackAgain("a newer delivery", s.Consumer, ledger.Name{ID: again, Topic: s.Topic}, minAckPause, ack)
	}
}

// ackAgain acknowledges another delivery of a message that is settled. Nobody waits for that, so that a failure is logged and, but for a
// panic of an interceptor, which is told of what was acknowledged, tried again: what the broker has no acknowledgement of comes with
// the next connection.
func (c *Consumer) ackAgain(what string, consumer pulsar.Consumer, n ledger.Name, pause time.Duration,
	ack func(pulsar.Consumer, pulsar.MessageID) error) {
	c.safely(func() {
		err := errPanicked
		defer func() {
			try := !errors.Is(err, errPanicked) && pause <= maxAckPause && c.life.ended.Err() == nil
			if again := c.ledger.AckedAgain(n, err, try); again != nil {
				n.ID = again
				time.AfterFunc(pause, func() {
					c.start(&c.swallows, func(context.Context) {
						if c.ledger.IsAcking(n) { // else the broker sends it again
							c.ackAgain(what, consumer, n, 2*pause, c.ackID)
						}
					})
				})
			}
		}()
		err = ack(consumer, n.ID)
		if err != nil && c.life.ended.Err() == nil {
			c.fail("ack", "acknowledging "+what, err, "message", n.ID)
		}
	})
}

// ackID acknowledges an id in a call of its own.
func (c *Consumer) ackID(consumer pulsar.Consumer, id pulsar.MessageID) error {
	return c.call(func() error { return consumer.AckID(id) })
}

// minAckPause is how long the next try of an acknowledgement that nobody waits for is put off, each time for twice as long, up to
// maxAckPause.
const minAckPause, maxAckPause = time.Second, 32 * time.Second

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
	began := c.now()
	ack := pulsar.Consumer.AckIDCumulative
	consumer, before, id := c.ledger.Newest(n)
	if consumer == nil {
		consumer = c.current()
	}
	if before != nil {
		if err := c.call(func() error { return ack(consumer, before) }); err != nil {
			return err
		}
	}
	for id != nil {
		if err := c.call(func() error { return ack(consumer, id) }); err != nil {
			c.ledger.NotSettledTo(n)
			return err
		}
		var settled []ledger.Settling
		if id, settled = c.ledger.SettleTo(n, id); id != nil && id.BatchIdx() < 0 { // the whole entry, and what is before it is acknowledged
			ack = pulsar.Consumer.AckID
		}
		for _, s := range settled {
			c.acked(began, n, nil, &s, nil)
		}
	}
	return nil
}

// ackAllAgain makes the cumulative acknowledgements once more that may have been lost with a connection. Of several topics upstream does not say
// which is connected again: what is made for one is made for all, and so for all that are connected within a while. Nobody waits for it. A Seek,
// which breaks the connection too, is not to be undone.
func (c *Consumer) ackAllAgain() {
	if c.seeking.Load() || !c.covering.CompareAndSwap(false, true) {
		return
	}
	time.AfterFunc(coverPause, func() {
		c.covering.Store(false)
		c.start(&c.swallows, func(session context.Context) {
			c.ledger.AckAgain(func(consumer pulsar.Consumer, topic string, id pulsar.MessageID) {
				if !c.seeking.Load() && session.Err() == nil {
					c.ackTo(consumer, topic, id)
				}
			})
		})
	})
}

const coverPause = 50 * time.Millisecond

// ackTo makes a cumulative acknowledgement once more.
func (c *Consumer) ackTo(consumer pulsar.Consumer, topic string, id pulsar.MessageID) {
	c.safely(func() {
		if len(c.hooks.of) > 0 { // interceptors were told of what it is
			c.hooks.later.begin(id)
			defer c.hooks.later.end(id)
		}
		if err := c.call(func() error { return consumer.AckIDCumulative(id) }); err != nil && c.life.ended.Err() == nil {
			c.fail("ack", "acknowledging again what a lost connection may have lost", err, "topic", topic, "message", id)
		}
	})
}
