package pulsartest

import (
	"math"

	"github.com/pulsar-redelivery/redelivery/pulsartest/internal/wire"
)

// cmdSeek moves a subscription to a message or a time.
type cmdSeek struct {
	Consumer    uint64
	Request     uint64
	ID          *wire.MessageID
	PublishTime uint64
}

var typeSeek = wire.Register[cmdSeek](28, "SEEK")

func (*cmdSeek) Type() wire.Type { return typeSeek }

func (m *cmdSeek) Fields(c *wire.Codec) {
	c.Uint64(1, wire.Required, 0, &m.Consumer)
	c.Uint64(2, wire.Required, 0, &m.Request)
	wire.One(c, 3, wire.Optional, &m.ID)
	c.Uint64(4, wire.Optional, noTime, &m.PublishTime)
}

// noTime means that PublishTime is absent. It is not 0, since clients seek to time 0 for the oldest retained message.
const noTime = math.MaxUint64

// handle closes the consumers before it answers. Their clients subscribe again.
func (m *cmdSeek) handle(c *session) error {
	k, ok := c.consumers[m.Consumer]
	if !ok {
		return failf(wire.MetadataError, "Consumer not found")
	}
	t := k.sub.topic
	offset := len(t.log)
	switch {
	case m.ID == nil && m.PublishTime == noTime:
		return failf(wire.MetadataError, "Message id and message publish time were not present")
	case m.ID == nil:
		offset = t.findTime(m.PublishTime)
	case m.ID.Ledger == math.MaxUint64: // earliest
		offset = 0
	case m.ID.Ledger < math.MaxInt64:
		offset, _ = t.find(m.ID.Ledger, m.ID.Entry)
	}
	k.sub.reset(offset)
	if m.ID != nil && len(m.ID.AckSet) > 0 && offset < len(t.log) && c.server.indexAcks {
		k.sub.cursor.ackIndexes(offset, t.log[offset].messages, m.ID.AckSet)
	}
	c.send(result(m.Request, nil), nil)
	return nil
}

func (m *cmdSeek) describe(c *session, d *Command) {
	d.setConsumer(c, m.Consumer)
	if m.ID != nil {
		d.addIDs(*m.ID)
	}
}

func (m *cmdSeek) answer(err error) wire.Command { return result(m.Request, err) }
