package redelivery

import (
	"errors"
	"fmt"
	"time"

	"github.com/apache/pulsar-client-go/pulsar"

	"github.com/pulsar-redelivery/redelivery/internal/partition"
	"github.com/pulsar-redelivery/redelivery/internal/publishing"
	"github.com/pulsar-redelivery/redelivery/internal/topicname"
	"github.com/pulsar-redelivery/redelivery/internal/upstream"
)

// redelivered is a message as the application gets it again: with the Consumer's count, and with the number of the
// hand-over, so that a nack of an earlier hand-over is ignored.
type redelivered struct {
	pulsar.Message
	count uint32
	hand  uint64
}

func (m *redelivered) RedeliveryCount() uint32 { return m.count }

// identified is a message under the id of its newest delivery.
type identified struct {
	pulsar.Message
	id pulsar.MessageID
}

func (m identified) ID() pulsar.MessageID { return m.id }

// wrap returns the message that the application gets for a delivery.
func wrap(d *partition.Delivery) pulsar.Message {
	msg := d.Body.(pulsar.Message)
	if d.Hand == 0 && d.Count == msg.RedeliveryCount() {
		return msg
	}
	return &redelivered{msg, d.Count, d.Hand}
}

// unwrap removes the application's wrappers, as far as these have a method Unwrap.
func unwrap(msg pulsar.Message) pulsar.Message {
	for range maxWrappers {
		switch m := msg.(type) {
		case pulsar.ConsumerMessage:
			msg = m.Message
		case interface{ Unwrap() pulsar.Message }:
			msg = m.Unwrap()
		default:
			return msg
		}
	}
	return msg
}

const maxWrappers = 10

// name identifies a message in a call of the application. Topic is "" if unknown, as for a bare id and for a wrapper
// without Unwrap.
type name struct {
	partition.ID
	hand   uint64 // partition.AnyHand for a bare id, and for a wrapper without Unwrap
	object pulsar.MessageID
	body   pulsar.Message // as the inner consumer delivered it; nil for a bare id, and for a wrapper without Unwrap
	isOwn  bool           // the application passed the Consumer's own message, not a wrapper of it
}

// nameOf returns the name of a message. The topic of a wrapper without Unwrap is used only if it is non-persistent,
// since the application may have changed the topic.
func (c *Consumer) nameOf(msg pulsar.Message) (n name, err error) {
	for cm, ok := msg.(pulsar.ConsumerMessage); ok; cm, ok = msg.(pulsar.ConsumerMessage) {
		msg = cm.Message
	}
	if msg == nil {
		return n, errors.New("redelivery: message is nil, want one that was received")
	}
	defer func() { // a message of the application's own may embed nil
		if recover() != nil {
			err = fmt.Errorf("redelivery: message is an empty %T, want one that was received", msg)
		}
	}()
	unwrapped, topic := unwrap(msg), ""
	n.hand = partition.AnyHand
	if m, ok := unwrapped.(*redelivered); ok {
		n.hand, n.body = m.hand, m.Message
	} else if c.messages.Has(unwrapped) {
		n.hand, n.body = 0, unwrapped
	} else if other := orZero(msg.Topic); !topicname.IsPersistent(other) {
		topic = other
	}
	if n.body != nil {
		n.isOwn, topic = msg == unwrapped, n.body.Topic()
	}
	n.object = msg.ID()
	if !n.isOwn { // the Consumer's own messages have valid ids
		if err := upstream.CheckID(n.object); err != nil {
			return n, err
		}
	}
	n.ID = idOf(topic, n.object)
	return n, nil
}

// nameOfID returns the name of the message with this id.
func nameOfID(id pulsar.MessageID) (name, error) {
	if err := upstream.CheckID(id); err != nil {
		return name{}, err
	}
	return name{ID: idOf("", id), hand: partition.AnyHand, object: id}, nil
}

// find describes a message as the group knows it.
func (c *Consumer) find(n *name) (i partition.Info, isOpen bool, err error) {
	now := c.lock()
	defer c.unlockAndAct(now)
	return c.group.Find(n.ID, n.hand)
}

func idOf(topic string, id pulsar.MessageID) partition.ID {
	index := id.BatchIdx()
	if index < 0 && id.BatchSize() > 0 { // a chunked message
		index = 0
	}
	return partition.ID{Topic: topic, Ledger: id.LedgerID(), Entry: id.EntryID(), Index: index}
}

// orZero returns the result of a method of a message. It returns zero if the method panics: a message of the
// application's own may embed nil.
func orZero[T any](method func() T) (result T) {
	defer func() { _ = recover() }()
	return method()
}

// copyOf returns a message for the group to keep.
func copyOf(body pulsar.Message) (cp partition.Copy) {
	cp.Body = body
	cp.Size, cp.Buffer = upstream.Weigh(body)
	return cp
}

// isTracked reports whether a message can be redelivered. The broker keeps no message of a non-persistent topic.
func isTracked(msg pulsar.Message) bool { return topicname.IsPersistent(msg.Topic()) }

func foreign(id pulsar.MessageID) error {
	return fmt.Errorf("redelivery: message id %v is a %T, want the id of a message of pulsar-client-go", id, id)
}

// waitOf returns how long a message from the retry topic is held back: the broker may end its delay early.
func waitOf(retry pulsar.Message) time.Duration {
	delay, ok := publishing.DelayTime(retry)
	if !ok {
		return 0
	}
	const rounding = time.Millisecond // the publish time is rounded down by up to a millisecond
	// the publisher's clock may be ahead of this one
	return min(delay, maxDelay) + rounding - max(0, time.Since(retry.PublishTime()))
}

// maxDelay can be added to a time without overflow.
const maxDelay = 100 * 365 * 24 * time.Hour
