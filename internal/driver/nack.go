package driver

import (
	"fmt"
	"strings"
	"time"

	"github.com/apache/pulsar-client-go/pulsar"

	"github.com/pulsar-redelivery/redelivery/backoff"
	"github.com/pulsar-redelivery/redelivery/internal/ledger"
	"github.com/pulsar-redelivery/redelivery/nack"
)

// Nack starts the delay of a message, the policy's if delay is nil. reason is what a dead letter says; nil for its default.
func (x *Driver) Nack(msg pulsar.Message, delay *time.Duration, reason error) error {
	n, err := x.nameOf(msg)
	if err != nil {
		return err
	}
	return x.nack(n, msg, delay, reason)
}

// NackID is Nack by message id.
func (x *Driver) NackID(id pulsar.MessageID) error {
	if err := checkID(id); err != nil {
		return err
	}
	return x.nack(ledger.Name{ID: id}, nil, nil, nil)
}

// nack starts the delay of a message, the policy's if delay is nil. msg is nil if there is no more than its id.
func (x *Driver) nack(n ledger.Name, msg pulsar.Message, delay *time.Duration, reason error) error {
	if strings.HasPrefix(n.Topic, nonPersistent) {
		return nil
	}
	d, current, known := x.ledger.Find(n)
	if !known {
		if !isPulsarID(n.ID) || n.ID.BatchIdx() >= maxForeignIndex || n.ID.BatchSize() > maxForeignIndex {
			return foreign(n.ID)
		}
		count, topic := uint32(0), n.Topic
		if msg != nil {
			count, topic = countOf(msg), topicOf(msg)
		}
		x.ledger.Adopt(n, topic, x.inner, count)
		d, current, _ = x.ledger.Find(n)
	}
	if x.life.ended.Err() != nil {
		return ErrClosed
	}
	if !current { // a stale nack changes nothing
		return nil
	}
	if msg != nil && d.Message == nil {
		d.Message = x.received(msg)
	}
	if d.Message != nil && x.ledger.IsLast(d.Count) {
		x.giveUp(d, ledger.Leaving, reason)
		return nil
	}
	if delay == nil {
		policy := x.nackDelay(d.Count)
		delay = &policy
	}
	if from := x.settings.RetryFrom; msg != nil && from > 0 && *delay >= from {
		x.move(d, *delay)
		return nil
	}
	why := ledger.Failed
	if msg == nil && len(x.hooks.of) > 0 { // interceptors may have changed what is kept: of an id the broker's is to come, as upstream
		why = ledger.Unreadable
	}
	if s, had, _ := x.ledger.Nack(d, *delay, d.Message, why); had {
		x.nacked(s, msg, *delay)
	}
	return nil
}

// maxForeignIndex is more than a batch has messages. An entry that is not known has to have room for them.
const maxForeignIndex = 1 << 16

// InProgress restarts the ack timeout of a message.
func (x *Driver) InProgress(msg pulsar.Message) error {
	n, err := x.nameOf(msg)
	if err != nil {
		return err
	}
	switch {
	case x.settings.ackTimeout == nil || x.ledger.Touch(n):
		return nil
	case x.life.ended.Err() != nil:
		return ErrClosed
	}
	return fmt.Errorf("%w: %v", ErrNotHeld, n.ID)
}

// nackDelay returns what the nack policy says about a redelivery count.
func (x *Driver) nackDelay(count uint32) time.Duration { return x.delay(x.settings.NackBackoff, count) }

// delay returns what policy says about a redelivery count. A policy is the caller's code: it is not called under a lock,
// and its panic does not end a program in a goroutine that nobody can recover.
func (x *Driver) delay(policy backoff.RedeliveryBackoff, count uint32) (d time.Duration) {
	defer func() {
		if r := recover(); r != nil {
			x.Fail("policy", "policy", fmt.Errorf("panic at redelivery count %d: %v", count, r), "delay", nack.DefaultDelay)
			d = nack.DefaultDelay
		}
	}()
	return policy.Next(count)
}
