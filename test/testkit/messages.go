package testkit

import (
	"fmt"
	"strconv"
	"time"

	"github.com/apache/pulsar-client-go/pulsar"
	"google.golang.org/protobuf/encoding/protowire"
)

// Message is a message of a Fake with the fields that the tests need; its payload is "payload".
type Message struct {
	pulsar.Message
	MessageID pulsar.MessageID
	Count     uint32
	TopicName string
}

func (m Message) ID() pulsar.MessageID                            { return m.MessageID }
func (m Message) RedeliveryCount() uint32                         { return m.Count }
func (m Message) Payload() []byte                                 { return []byte("payload") }
func (m Message) Topic() string                                   { return m.TopicName }
func (m Message) Key() string                                     { return "" }
func (m Message) OrderingKey() string                             { return "" }
func (m Message) Properties() map[string]string                   { return nil }
func (m Message) PublishTime() time.Time                          { return time.Time{} }
func (m Message) GetEncryptionContext() *pulsar.EncryptionContext { return nil }

// BatchID is the id of a message of a batch.
type BatchID struct {
	pulsar.MessageID
	Size int32
}

func (id *BatchID) BatchSize() int32 { return id.Size }

// Item is a message that a StandIn delivers.
type Item struct {
	pulsar.Message // nil: the tests need only the fields below
	id             pulsar.MessageID
	topic          string
	payload        []byte
}

// Entry returns entry n of a topic, unbatched, with n as its payload.
func Entry(topic string, n int64) Item {
	return Item{id: newID(n, 0, 0), topic: topic, payload: []byte(strconv.FormatInt(n, 10))}
}

// Entries returns unbatched entries of the topic "t".
func Entries(numbers ...int64) (msgs []Item) {
	for _, n := range numbers {
		msgs = append(msgs, Entry("t", n))
	}
	return msgs
}

// Numbers returns the numbers from 0 to n-1.
func Numbers(n int64) (all []int64) {
	for i := range n {
		all = append(all, i)
	}
	return all
}

// newID returns the id of a new delivery of a message.
func newID(entry int64, index, size int32) pulsar.MessageID {
	if size == 0 {
		return pulsar.NewMessageID(1, entry, index, 0)
	}
	var b []byte
	for field, value := range map[protowire.Number]uint64{1: 1, 2: uint64(entry), 4: uint64(index), 6: uint64(size)} {
		b = protowire.AppendVarint(protowire.AppendTag(b, field, protowire.VarintType), value)
	}
	id, err := pulsar.DeserializeMessageID(b)
	if err != nil || id.BatchSize() != size {
		panic(err)
	}
	return id
}

func (m *Item) ID() pulsar.MessageID                            { return m.id }
func (m *Item) Topic() string                                   { return m.topic }
func (m *Item) Payload() []byte                                 { return m.payload }
func (m *Item) RedeliveryCount() uint32                         { return 0 }
func (m *Item) ProducerName() string                            { return "" }
func (m *Item) Properties() map[string]string                   { return nil }
func (m *Item) Key() string                                     { return "" }
func (m *Item) OrderingKey() string                             { return "" }
func (m *Item) IsNullValue() bool                               { return false }
func (m *Item) PublishTime() time.Time                          { return time.Time{} }
func (m *Item) EventTime() time.Time                            { return time.Time{} }
func (m *Item) GetEncryptionContext() *pulsar.EncryptionContext { return nil }

// EntryBatch returns a batch as upstream makes one, with all payloads in one buffer.
func EntryBatch(entry int64, messages, size int) (msgs []Item) {
	buffer := make([]byte, messages*size)
	for i := range messages {
		msgs = append(msgs, Item{
			id: newID(entry, int32(i), int32(messages)), topic: "t", payload: buffer[i*size : (i+1)*size],
		})
	}
	return msgs
}

// WholeMessage is a Message that can be published; its payload is the number of its entry.
type WholeMessage struct{ Message }

func (m WholeMessage) Payload() []byte             { return fmt.Append(nil, m.MessageID.EntryID()) }
func (WholeMessage) Topic() string                 { return "persistent://public/default/t" }
func (WholeMessage) Key() string                   { return "" }
func (WholeMessage) OrderingKey() string           { return "" }
func (WholeMessage) EventTime() time.Time          { return time.Time{} }
func (WholeMessage) Properties() map[string]string { return nil }
func (WholeMessage) SchemaVersion() []byte         { return nil }
