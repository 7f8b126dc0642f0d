package upstream

import (
	"errors"
	"fmt"
	"reflect"
	"sync/atomic"

	"github.com/apache/pulsar-client-go/pulsar"
)

// CheckID returns an error for an id that is nil or whose methods panic, such as one that embeds nil.
func CheckID(id pulsar.MessageID) (err error) {
	if id == nil {
		return errors.New("redelivery: message id is nil, want that of a message that was received")
	}
	defer func() {
		if recover() != nil {
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

// IsMessageID reports whether an id has the type that pulsar-client-go gives to ids of messages. pulsar-client-go
// ignores acknowledgements of other ids, such as those of GetLastMessageIDs.
func IsMessageID(id pulsar.MessageID) bool {
	_, ofTopic := id.(pulsar.TopicMessageID)
	return !ofTopic && isOwn(id)
}

// bareID is the type of an id that was made from numbers or from bytes.
var bareID = reflect.TypeOf(pulsar.NewMessageID(0, 0, 0, 0))

// IsBareOfBatch reports whether an id names a single message of a batch and was made from numbers or from bytes. Such an
// id does not know which messages of the batch are acknowledged, and pulsar-client-go takes it for the id of the whole
// batch.
func IsBareOfBatch(id pulsar.MessageID) bool {
	return (id.BatchSize() > 1 || id.BatchIdx() > 0) && reflect.TypeOf(id) == bareID
}

// isOwn reports whether the type of a value belongs to pulsar-client-go. The types of ids and clients are not exported
// there, so isOwn looks at the package of the type.
func isOwn(v any) bool {
	t := reflect.TypeOf(v)
	return t.Kind() == reflect.Pointer && t.Elem().PkgPath() == reflect.TypeFor[pulsar.ConsumerOptions]().PkgPath()
}

// HasTransactions reports whether a client was made with EnableTransaction. No method of the client reports that, so
// HasTransactions reads a private field. With batch-index acknowledgement the broker refuses to acknowledge the last
// message of a batch in a transaction that has acknowledged others of the batch.
func HasTransactions(client pulsar.Client) bool {
	if client == nil || !isOwn(client) {
		return false
	}
	coordinator := reflect.ValueOf(client).Elem().FieldByName("tcClient")
	return coordinator.IsValid() && coordinator.Kind() == reflect.Pointer && !coordinator.IsNil()
}

// Whole returns the id that acknowledges the whole entry of an id.
func Whole(id pulsar.MessageID) pulsar.MessageID {
	if id.BatchSize() <= 1 {
		return id
	}
	return pulsar.NewMessageID(id.LedgerID(), id.EntryID(), -1, id.PartitionIdx())
}

// Index returns the index of a message in its entry; 0 for a message in chunks.
func Index(id pulsar.MessageID) int32 { return max(0, id.BatchIdx()) }

// Messages knows the type of the messages that a consumer delivers, which pulsar-client-go does not export. So Messages
// distinguishes them from messages that the application has wrapped. It may be used concurrently.
type Messages struct{ of atomic.Value } // the type

// Note notes the type of a message that was delivered.
func (m *Messages) Note(msg pulsar.Message) {
	if m.of.Load() == nil {
		m.of.Store(reflect.TypeOf(msg))
	}
}

// Has reports whether a message is of the noted type.
func (m *Messages) Has(msg pulsar.Message) bool { return reflect.TypeOf(msg) == m.of.Load() }

// overhead is roughly the memory that a message takes without its payload, keys and properties. propertyOverhead is
// that of a property without its text.
const overhead, propertyOverhead = 512, 48

// Weigh returns the bytes that a message keeps in memory: size by itself, and buffer in the buffer of its batch. A
// payload of a batch is a slice of that buffer, and the capacity of the slice reaches to the end of the buffer.
func Weigh(msg pulsar.Message) (size, buffer int64) {
	size = overhead
	// a foreign message may embed nil; if its methods panic, Weigh returns the bytes that it has counted so far
	defer func() { _ = recover() }()
	if properties := msg.Properties(); len(properties) > 0 { // a range over an empty map takes 20 ns
		for key, value := range properties {
			size += int64(len(key) + len(value) + propertyOverhead)
		}
	}
	id, payload := msg.ID(), int64(cap(msg.Payload()))
	size += int64(len(msg.Key()) + len(msg.OrderingKey()))
	if n := int64(id.BatchSize()); n > 1 {
		return size, payload * n / max(1, n-int64(Index(id)))
	}
	return size + payload, 0
}
