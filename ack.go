package redelivery

import (
	"errors"
	"fmt"
	"time"

	"github.com/apache/pulsar-client-go/pulsar"

	"github.com/pulsar-redelivery/redelivery/internal/partition"
	"github.com/pulsar-redelivery/redelivery/internal/topicname"
	"github.com/pulsar-redelivery/redelivery/internal/upstream"
)

// Ack acknowledges a message. If Ack returns nil, the message is not delivered again. A message that waits for its
// redelivery may still be acknowledged. Acknowledging a message twice is not an error. After Close, Ack returns
// ErrClosed. With AckWithResponse in pulsar.ConsumerOptions, Ack waits for the broker and returns the broker's error.
func (c *Consumer) Ack(msg pulsar.Message) error {
	n, err := c.nameOf(msg)
	if err != nil {
		return err
	}
	return c.ack(n, msg, partition.Done, pulsar.Consumer.AckID)
}

// AckID acknowledges a message by its id, as Ack does. It returns an error for a message of a batch that the Consumer
// does not know, if the id was made from bytes or numbers (pulsar.DeserializeMessageID, pulsar.NewMessageID):
// pulsar-client-go would acknowledge the whole batch. So does AckIDList, and so does AckIDCumulative, except for the
// last message of a batch.
func (c *Consumer) AckID(id pulsar.MessageID) error {
	n, err := nameOfID(id)
	if err != nil {
		return err
	}
	return c.ack(n, nil, partition.Done, pulsar.Consumer.AckID)
}

// AckWithTxn acknowledges a message in a transaction. The message's ack timeout ends, and while the transaction is open
// the message is not redelivered. If the transaction is aborted, the broker sends the message again at once. The
// Consumer hands it out with the next redelivery count, once the delay of an earlier nack is over.
//
// Messages of a batch are an exception: once the rest of the batch is acknowledged, the broker does not send the
// messages of an aborted transaction again, with or without batch-index acknowledgement. Plain consumers have the same
// limit. Producers of messages that are acknowledged in transactions should set DisableBatching. Without batch-index
// acknowledgement, pulsar-client-go sends nothing until the last message of the batch is acknowledged; then the
// transaction of that last message acknowledges the whole batch. With batch-index acknowledgement
// (EnableBatchIndexAcknowledgment), a transaction that has acknowledged other messages of a batch cannot acknowledge
// the last one: the broker refuses the acknowledgement, and the transaction cannot end. So Subscribe does not switch
// batch-index acknowledgement on if the client has EnableTransaction. If the client is wrapped or unknown, Subscribe
// and SubscribeWith do not see EnableTransaction: then use WithoutBatchIndexAcks, or AckWithTxn returns an error for
// messages of batches.
func (c *Consumer) AckWithTxn(msg pulsar.Message, txn pulsar.Transaction) error {
	n, err := c.nameOf(msg)
	if err != nil {
		return err
	}
	if txn == nil {
		return errors.New("redelivery: transaction is nil, want a pulsar.Transaction")
	}
	if size := n.object.BatchSize(); c.settings.indexAcks == partition.SentIndexAcks && size > 1 {
		return fmt.Errorf("redelivery: AckWithTxn: message %v is of a batch of %d, want WithoutBatchIndexAcks or a "+
			"client with EnableTransaction", n.object, size)
	}
	return c.ack(n, msg, partition.Undecided, func(consumer pulsar.Consumer, id pulsar.MessageID) error {
		return c.untilEnded(func() (err error) {
			defer func() { // pulsar-client-go panics on a transaction that is not its own
				if v := recover(); v != nil {
					err = fmt.Errorf("redelivery: AckWithTxn: %v", v)
				}
			}()
			return consumer.AckWithTxn(identified{msg, id}, txn)
		})
	})
}

// ackBy is a way to acknowledge a message with a consumer of pulsar-client-go.
type ackBy func(pulsar.Consumer, pulsar.MessageID) error

// ack acknowledges the newest delivery of a message.
func (c *Consumer) ack(n name, msg pulsar.Message, outcome partition.Outcome, by ackBy) error {
	if err := c.enter(); err != nil {
		return err
	}
	var began time.Duration
	if !c.observer.Untimed {
		began = c.now()
	}
	var a partition.Ack
	c.mu.Lock()
	err := c.beginAck(&n, &a)
	c.unlock()
	if a.Late {
		c.calls.leave()
		return nil
	}
	if err == nil {
		err = c.ackWith(by, c.sourceOf(&a.Delivery), ackID(&n, &a))
		c.endAck(&n, &a, err, outcome)
	}
	c.calls.leave()
	if !a.Late {
		c.reportAck(&n, msg, &a.Delivery, began, err)
	}
	return err
}

// beginAck begins to settle a message. The caller holds mu.
func (c *Consumer) beginAck(n *name, a *partition.Ack) error {
	err := c.group.BeginAck(n.ID, a)
	if err == nil && a.Object == nil && !a.Late && upstream.IsBareOfBatch(n.object) {
		err = bareOfBatch(n.object)
	}
	return err
}

func bareOfBatch(id pulsar.MessageID) error {
	return fmt.Errorf("redelivery: message id %v is of a batch and did not come with a message, want the id of a message "+
		"that was received: pulsar-client-go would acknowledge the whole batch", id)
}

func (c *Consumer) ackWith(by ackBy, consumer pulsar.Consumer, id pulsar.MessageID) error {
	if !c.settings.opts.AckWithResponse { // no closure, which would cost an allocation
		return by(consumer, id)
	}
	return c.acknowledge(func() error { return by(consumer, id) })
}

// acker is an inner consumer as the publisher gets it: its AckID goes through ackWith.
type acker struct {
	pulsar.Consumer
	c *Consumer
}

func (a acker) AckID(id pulsar.MessageID) error {
	return a.c.ackWith(pulsar.Consumer.AckID, a.Consumer, id)
}

// sourceOf returns the consumer that acknowledges a delivery: that of its topic, if the topic is known. An inner
// consumer of several topics cannot tell from the id of a chunked message which topic the message is of.
func (c *Consumer) sourceOf(d *partition.Delivery) pulsar.Consumer {
	if source, ok := d.Source.(pulsar.Consumer); ok {
		return source
	}
	return c.current()
}

// ackID returns the id to acknowledge. For a message that the group knows, this is the id of the newest delivery, or of
// its whole entry. For any other message, it is the application's id.
func ackID(n *name, a *partition.Ack) pulsar.MessageID {
	if a.Object == nil {
		return n.object
	}
	return entryID(a.Object, a.Whole)
}

// entryID returns the id that the group keeps as object. If whole is set, it returns the id of the whole entry.
func entryID(object any, whole bool) pulsar.MessageID {
	id := object.(pulsar.MessageID)
	if whole {
		id = upstream.Whole(id)
	}
	return id
}

// endAck reports the outcome of an acknowledgement to the group. The caller has entered c.calls, so Close waits for
// ackAgain, too.
func (c *Consumer) endAck(n *name, a *partition.Ack, err error, outcome partition.Outcome) {
	if err != nil {
		outcome = partition.Failed
	}
	var again *partition.Again
	now := c.lock()
	switch {
	case a.Object != nil:
		again = c.group.EndAck(now, a, outcome)
	case err == nil && n.object.BatchIdx() < 0: // a whole batch
		_ = c.group.SettleEntry(now, n.ID) // BeginAck has refused an ambiguous id
	}
	c.unlockAndAct(now)
	if again != nil {
		_ = c.ackAgain(*again)
	}
}

// ackAgain acknowledges another delivery of a settled message, and reports an error. After an error the broker sends
// the message again later.
func (c *Consumer) ackAgain(a partition.Again) error {
	id := entryID(a.Object, a.Whole)
	err := c.ackWith(pulsar.Consumer.AckID, a.Source.(pulsar.Consumer), id)
	if err != nil && !c.isOver() {
		c.reportFailure("ack", "acknowledging a settled message again", err, "topic", a.Topic, "message", id)
	}
	return err
}

// AckCumulative acknowledges all messages of a partition up to and including this one. None of them comes back.
// AckCumulative works on Exclusive and Failover; on the other types it returns pulsar-client-go's error.
func (c *Consumer) AckCumulative(msg pulsar.Message) error {
	n, err := c.nameOf(msg)
	if err != nil {
		return err
	}
	return c.ackCumulative(n)
}

// AckIDCumulative acknowledges by message id, as AckCumulative does.
func (c *Consumer) AckIDCumulative(id pulsar.MessageID) error {
	n, err := nameOfID(id)
	if err != nil {
		return err
	}
	return c.ackCumulative(n)
}

func (c *Consumer) ackCumulative(n name) error {
	began := c.now()
	now := c.lock()
	d, err := c.group.Upto(n.ID)
	c.unlockAndAct(now)
	if err != nil {
		return err
	}
	consumer, id := c.sourceOf(&d), n.object
	switch {
	case d.Object != nil:
		id = d.Object.(pulsar.MessageID)
	case upstream.IsBareOfBatch(id) && id.BatchIdx() != id.BatchSize()-1:
		return bareOfBatch(id)
	}
	err = c.call(func() error { return c.ackWith(pulsar.Consumer.AckIDCumulative, consumer, id) })
	if err != nil {
		return err
	}
	var settled []partition.Delivery
	var note func(partition.Delivery)
	if c.observer.Settled != nil {
		note = func(d partition.Delivery) { settled = append(settled, d) }
	}
	now = c.lock()
	again, err := c.group.SettleUpto(now, n.ID, note)
	c.unlockAndAct(now)
	if again != nil {
		_ = c.call(func() error { return c.ackAgain(*again) })
	}
	for _, d := range settled {
		c.reportAck(&n, nil, &d, began, nil)
	}
	return err
}

// reportAck reports the outcome of an acknowledgement to observers. A message that the group does not know is reported
// only if its topic is non-persistent.
func (c *Consumer) reportAck(n *name, msg pulsar.Message, d *partition.Delivery, began time.Duration, err error) {
	if c.observer.Settled == nil {
		return
	}
	if d.Object == nil {
		if topicname.IsPersistent(n.Topic) {
			return
		}
		d = &partition.Delivery{ID: n.ID, Object: n.object}
	}
	if msg != nil && !n.isOwn { // the application may count its own attempts
		d.Count = max(d.Count, orZero(msg.RedeliveryCount))
	}
	e := c.settledEvent(d, msg, Acked, began)
	e.Err = err
	if !c.observer.Untimed {
		e.Took = c.now() - began
	}
	c.observer.Settled(e)
}
