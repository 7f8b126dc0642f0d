package model

import (
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/apache/pulsar-client-go/pulsar"
)

func (c *modelCopy) LedgerID() int64     { return c.entry.ledger }
func (c *modelCopy) EntryID() int64      { return c.entry.entry }
func (c *modelCopy) BatchIdx() int32     { return int32(c.index) }
func (c *modelCopy) BatchSize() int32    { return int32(len(c.left)) }
func (c *modelCopy) PartitionIdx() int32 { return 0 }
func (c *modelCopy) String() string      { return fmt.Sprintf("%v.%d", c.entry, c.index) }

func (c *modelCopy) Serialize() []byte {
	return pulsar.NewMessageID(c.LedgerID(), c.EntryID(), c.BatchIdx(), 0).Serialize()
}

func (e *modelEntry) String() string {
	return fmt.Sprintf("%c%d:%d", 'A'+e.sub.index(), e.ledger, e.entry)
}

func (s *modelSub) index() int {
	n, _ := strconv.Atoi(s.name[len(s.name)-1:])
	return n
}

func (a modelAck) String() string {
	if a.left == nil {
		return a.entry.String()
	}
	return fmt.Sprintf("%v except %v", a.entry, a.left)
}

// message returns the ConsumerMessage that upstream puts into the channel.
func (c *modelCopy) message() pulsar.ConsumerMessage {
	return pulsar.ConsumerMessage{Consumer: c.part, Message: modelMessage{c}}
}

// modelMessage models a message of upstream. Its payload is the serial number of the copy.
type modelMessage struct{ copy *modelCopy }

func (m modelMessage) Topic() string                                   { return m.copy.part.sub.name }
func (m modelMessage) ProducerName() string                            { return "model" }
func (m modelMessage) Properties() map[string]string                   { return nil }
func (m modelMessage) Payload() []byte                                 { return strconv.AppendInt(nil, int64(m.copy.serial), 10) }
func (m modelMessage) IsNullValue() bool                               { return false }
func (m modelMessage) ID() pulsar.MessageID                            { return m.copy }
func (m modelMessage) PublishTime() time.Time                          { return m.copy.entry.published }
func (m modelMessage) EventTime() time.Time                            { return time.Time{} }
func (m modelMessage) Key() string                                     { return "" }
func (m modelMessage) OrderingKey() string                             { return "" }
func (m modelMessage) RedeliveryCount() uint32                         { return m.copy.count }
func (m modelMessage) IsReplicated() bool                              { return false }
func (m modelMessage) GetReplicatedFrom() string                       { return "" }
func (m modelMessage) GetSchemaValue(any) error                        { return errors.New("model: no schema") }
func (m modelMessage) SchemaVersion() []byte                           { return nil }
func (m modelMessage) GetEncryptionContext() *pulsar.EncryptionContext { return nil }
func (m modelMessage) Index() *uint64                                  { return nil }
func (m modelMessage) BrokerPublishTime() *time.Time                   { return nil }
