package redelivery

import (
	"errors"
	"fmt"
	"reflect"

	"github.com/apache/pulsar-client-go/pulsar"

	"github.com/pulsar-redelivery/redelivery/internal/delivery"
)

// identified is a message under the id of its newest delivery and with the Consumer's count.
type identified struct {
	pulsar.Message
	id    pulsar.MessageID
	count uint32
}

func (m identified) ID() pulsar.MessageID    { return m.id }
func (m identified) RedeliveryCount() uint32 { return m.count }

func idOf(msg pulsar.Message) (id pulsar.MessageID, err error) {
	if msg == nil {
		return nil, errors.New("redelivery: message is nil, want one that was received")
	}
	defer func() {
		if r := recover(); r != nil {
			id, err = nil, fmt.Errorf("redelivery: message is an empty %T, want one that was received", msg)
		}
	}()
	id = msg.ID()
	return id, checkID(id)
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
	delivery.KeyOf(id)
	id.BatchSize()
	id.PartitionIdx()
	return nil
}

// isPulsarID reports whether id is one that upstream gives to messages: it drops others, those of GetLastMessageIDs too.
func isPulsarID(id pulsar.MessageID) bool {
	if _, ok := id.(pulsar.TopicMessageID); ok {
		return false
	}
	t := reflect.TypeOf(id)
	return t.Kind() == reflect.Pointer && t.Elem().PkgPath() == reflect.TypeFor[pulsar.ConsumerOptions]().PkgPath()
}

func foreign(id pulsar.MessageID) error {
	return fmt.Errorf("redelivery: message id %v is a %T, want a message's of pulsar-client-go", id, id)
}
