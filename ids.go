package redelivery

import (
	"errors"
	"fmt"
	"reflect"

	"github.com/apache/pulsar-client-go/pulsar"

	"github.com/pulsar-redelivery/redelivery/internal/ledger"
	"github.com/pulsar-redelivery/redelivery/internal/topicname"
)

// identified is a message under the id of its newest delivery and with the Consumer's count.
type identified struct {
	pulsar.Message
	id    pulsar.MessageID
	count uint32
}

func (m identified) ID() pulsar.MessageID    { return m.id }
func (m identified) RedeliveryCount() uint32 { return m.count }

// handedOver is a message as the application gets it again: with the Consumer's count, and the hand-over, by which a late nack
// of an earlier one is told.
type handedOver struct {
	pulsar.Message
	count uint32
	hand  uint8
}

func (m *handedOver) RedeliveryCount() uint32 { return m.count }

// messageOf returns what the application gets.
func messageOf(d *ledger.Delivery) pulsar.Message {
	if d.Hand == 0 && d.Count == d.Message.RedeliveryCount() {
		return d.Message
	}
	return &handedOver{d.Message, d.Count, d.Hand}
}

// original returns what the inner consumer delivered.
func original(msg pulsar.Message) pulsar.Message {
	switch m := msg.(type) {
	case *handedOver:
		return m.Message
	case *givenUp:
		return m.Message
	}
	return msg
}

// received returns what the inner consumer delivered of what the application has wrapped, or nil if it does not show.
func (c *Consumer) received(msg pulsar.Message) pulsar.Message { return original(c.handedOver(msg)) }

// handOf returns the hand-over of a message that the application has wrapped, if it shows.
func (c *Consumer) handOf(msg pulsar.Message) (hand uint8, shows bool) {
	m := c.handedOver(msg)
	if again, ok := m.(*handedOver); ok {
		return again.hand, true
	}
	return 0, m != nil
}

// handedOver returns what the application got of what it has wrapped, or nil if it does not show.
func (c *Consumer) handedOver(msg pulsar.Message) (handed pulsar.Message) {
	defer func() { _ = recover() }() // an embedded pointer may be nil
	for range maxWrappers {
		switch m := msg.(type) {
		case nil:
			return nil
		case *handedOver:
			return m
		case *givenUp:
			msg = m.Message
			continue
		case pulsar.ConsumerMessage:
			msg = m.Message
			continue
		}
		if reflect.TypeOf(msg) == c.raw.Load() {
			return msg
		}
		wrapper := reflect.Indirect(reflect.ValueOf(msg))
		if wrapper.Kind() != reflect.Struct {
			return nil
		}
		field := wrapper.FieldByName("Message")
		if !field.IsValid() || !field.CanInterface() {
			return nil
		}
		msg, _ = reflect.TypeAssert[pulsar.Message](field)
	}
	return nil
}

const maxWrappers = 10

// nameOf returns what a message is known by. One of the type that the inner consumer delivers was delivered for the first
// time; of one that somebody has wrapped nobody can tell.
func (c *Consumer) nameOf(msg pulsar.Message) (n ledger.Name, err error) {
	for range maxWrappers { // of a channel's element
		cm, ok := msg.(pulsar.ConsumerMessage)
		if !ok {
			break
		}
		msg = cm.Message
	}
	if msg == nil {
		return n, errors.New("redelivery: message is nil, want one that was received")
	}
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("redelivery: message is an empty %T, want one that was received", msg)
		}
	}()
	if reflect.TypeOf(msg) == c.raw.Load() {
		n = ledger.Name{ID: msg.ID(), Topic: msg.Topic(), Count: msg.RedeliveryCount(), HasHand: true, Own: true}
		if n.ID == nil { // it is of an inner consumer that is not upstream's
			err = checkID(nil)
		}
		return n, err
	}
	if m, ok := msg.(*handedOver); ok {
		n.Hand, n.Count, n.HasHand, n.Own = m.hand, m.count, true, true
	} else {
		n.Hand, n.HasHand = c.handOf(msg)
	}
	n.ID = msg.ID()
	if err := checkID(n.ID); err != nil {
		return n, err
	}
	if n.Own || !topicname.IsPersistent(topicOf(msg)) { // else the topic may be the application's own
		n.Topic = topicOf(msg)
	}
	return n, nil
}

// topicOf returns the topic of a message, or "" of one that is not upstream's and panics when asked.
func topicOf(msg pulsar.Message) (topic string) {
	defer func() { _ = recover() }()
	return msg.Topic()
}

// countOf returns the redelivery count of a message, or 0 of one that is not upstream's and panics when asked.
func countOf(msg pulsar.Message) (count uint32) {
	defer func() { _ = recover() }()
	return msg.RedeliveryCount()
}

func checkID(id pulsar.MessageID) (err error) {
	if id == nil {
		return errors.New("redelivery: message id is nil, want that of a message that was received")
	}
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("redelivery: message id is an empty %T, want that of a message that was received", id)
		}
	}()
	id.LedgerID()
	id.EntryID()
	id.BatchIdx()
	id.BatchSize()
	id.PartitionIdx()
	return nil
}

// isPulsarID reports whether id is one that upstream gives to messages: it drops others, those of GetLastMessageIDs too.
func isPulsarID(id pulsar.MessageID) bool {
	if _, ok := id.(pulsar.TopicMessageID); ok {
		return false
	}
	return isUpstreams(id)
}

// isUpstreams reports whether a value is of a type of pulsar-client-go.
func isUpstreams(v any) bool {
	t := reflect.TypeOf(v)
	return t.Kind() == reflect.Pointer && t.Elem().PkgPath() == reflect.TypeFor[pulsar.ConsumerOptions]().PkgPath()
}

func foreign(id pulsar.MessageID) error {
	return fmt.Errorf("redelivery: message id %v is a %T, want a message's of pulsar-client-go", id, id)
}
