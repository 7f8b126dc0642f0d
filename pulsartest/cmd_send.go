package pulsartest

import (
	"errors"
	"fmt"

	"github.com/pulsar-redelivery/redelivery/pulsartest/internal/wire"
)

// cmdSend publishes an entry, which follows the command in the frame.
type cmdSend struct {
	Producer  uint64
	Sequence  uint64
	Messages  int32
	HighestID uint64
	Chunk     bool

	entry *entry // nil if the checksum is wrong
}

var typeSend = wire.Register[cmdSend](6, "SEND")

func (*cmdSend) Type() wire.Type { return typeSend }

func (m *cmdSend) Fields(c *wire.Codec) {
	c.Uint64(1, wire.Required, 0, &m.Producer)
	c.Uint64(2, wire.Required, 0, &m.Sequence)
	c.Int32(3, wire.Optional, 1, &m.Messages)
	c.Uint64(6, wire.Optional, 0, &m.HighestID)
	c.Bool(7, wire.Optional, false, &m.Chunk)
}

// cmdSendReceipt confirms a Send.
type cmdSendReceipt struct {
	Producer  uint64
	Sequence  uint64
	ID        *wire.MessageID
	HighestID uint64
}

var typeSendReceipt = wire.Register[cmdSendReceipt](7, "SEND_RECEIPT")

func (*cmdSendReceipt) Type() wire.Type { return typeSendReceipt }

func (m *cmdSendReceipt) Fields(c *wire.Codec) {
	c.Uint64(1, wire.Required, 0, &m.Producer)
	c.Uint64(2, wire.Required, 0, &m.Sequence)
	wire.One(c, 3, wire.Optional, &m.ID)
	c.Uint64(4, wire.Optional, 0, &m.HighestID)
}

// cmdSendError refuses a Send.
type cmdSendError struct {
	Producer uint64
	Sequence uint64
	Error    wire.ServerError
	Message  string
}

var typeSendError = wire.Register[cmdSendError](8, "SEND_ERROR")

func (*cmdSendError) Type() wire.Type { return typeSendError }

func (m *cmdSendError) Fields(c *wire.Codec) {
	c.Uint64(1, wire.Required, 0, &m.Producer)
	c.Uint64(2, wire.Required, 0, &m.Sequence)
	wire.Enum(c, 3, wire.Required, &m.Error)
	c.String(4, wire.Required, &m.Message)
}

// prepare reads the message. The session calls it outside the server's lock, since reading takes a while.
func (m *cmdSend) prepare(data []byte) (err error) {
	m.entry, err = newEntry(m, data)
	if errors.Is(err, wire.ErrChecksum) {
		return nil
	}
	return err
}

func (m *cmdSend) handle(c *session) error {
	p, ok := c.producers[m.Producer]
	if !ok {
		if _, ok := c.leftovers[m.Producer]; ok {
			return nil // sent before the client learned that the producer is closed
		}
		return fmt.Errorf("producer %d is unknown", m.Producer)
	}
	if m.entry == nil {
		return failf(wire.ChecksumError, "Checksum failed on the broker")
	}
	if p.topic.terminated {
		return failf(wire.TopicTerminatedError, "Topic was terminated")
	}
	p.topic.append(m.entry)
	c.send(m.answer(nil), nil)
	p.topic.deliver(m.entry)
	return nil
}

func (m *cmdSend) describe(c *session, d *Command) { d.setProducer(c, m.Producer) }

// answer confirms the Send, or refuses it if err is not nil. If the entry was not stored, the receipt names an entry
// that does not exist.
func (m *cmdSend) answer(err error) wire.Command {
	if err != nil {
		return &cmdSendError{Producer: m.Producer, Sequence: m.Sequence, Error: codeOf(err), Message: err.Error()}
	}
	receipt := &cmdSendReceipt{Producer: m.Producer, Sequence: m.Sequence, HighestID: noRequest,
		ID: &wire.MessageID{Partition: -1, BatchIndex: -1}}
	if m.entry != nil {
		receipt.ID.Ledger, receipt.ID.Entry = m.entry.ledger, m.entry.id
	}
	if m.HighestID > 0 {
		receipt.HighestID = m.HighestID
	}
	return receipt
}

func (m *cmdSendReceipt) describe(c *session, d *Command) {
	d.setProducer(c, m.Producer)
	if m.ID != nil { // a client may send anything
		d.addIDs(*m.ID)
	}
}

func (m *cmdSendError) describe(c *session, d *Command) { d.setProducer(c, m.Producer) }
