package pulsartest

import (
	"fmt"

	"github.com/pulsar-redelivery/redelivery/pulsartest/internal/wire"
)

// cmdProducer creates a producer.
type cmdProducer struct {
	Topic               string
	Producer            uint64
	Request             uint64
	Name                string
	Encrypted           bool
	Metadata            []wire.KeyValue
	Schema              *wire.Schema
	Epoch               uint64
	UserProvidedName    bool
	AccessMode          wire.AccessMode
	TopicEpoch          uint64
	InitialSubscription string
}

var typeProducer = wire.Register[cmdProducer](5, "PRODUCER")

func (*cmdProducer) Type() wire.Type { return typeProducer }

func (m *cmdProducer) Fields(c *wire.Codec) {
	c.String(1, wire.Required, &m.Topic)
	c.Uint64(2, wire.Required, 0, &m.Producer)
	c.Uint64(3, wire.Required, 0, &m.Request)
	c.String(4, wire.Optional, &m.Name)
	c.Bool(5, wire.Optional, false, &m.Encrypted)
	wire.Many(c, 6, &m.Metadata)
	wire.One(c, 7, wire.Optional, &m.Schema)
	c.Uint64(8, wire.Optional, 0, &m.Epoch)
	c.Bool(9, wire.Optional, true, &m.UserProvidedName)
	wire.Enum(c, 10, wire.Optional, &m.AccessMode)
	c.Uint64(11, wire.Optional, wire.Absent, &m.TopicEpoch)
	c.String(13, wire.Optional, &m.InitialSubscription)
}

// cmdProducerSuccess answers Producer.
type cmdProducerSuccess struct {
	Request        uint64
	Name           string
	LastSequenceID int64
	SchemaVersion  []byte
	TopicEpoch     uint64
	Ready          bool
}

var typeProducerSuccess = wire.Register[cmdProducerSuccess](17, "PRODUCER_SUCCESS")

func (*cmdProducerSuccess) Type() wire.Type { return typeProducerSuccess }

func (m *cmdProducerSuccess) Fields(c *wire.Codec) {
	c.Uint64(1, wire.Required, 0, &m.Request)
	c.String(2, wire.Required, &m.Name)
	c.Int64(3, wire.Optional, -1, &m.LastSequenceID)
	c.Bytes(4, wire.Optional, &m.SchemaVersion)
	c.Uint64(5, wire.Optional, 0, &m.TopicEpoch)
	c.Bool(6, wire.Optional, true, &m.Ready)
}

func (m *cmdProducer) handle(c *session) error {
	s := c.server
	if p, ok := c.producers[m.Producer]; ok { // the client asks again
		p.ready(m.Request, nil)
		return nil
	}
	t, err := s.topic(m.Topic, true)
	if err != nil {
		return err
	}
	p := &producer{session: c, topic: t, id: m.Producer, name: m.Name, epoch: m.Epoch, mode: m.AccessMode,
		meta: m.Metadata, topicEpoch: m.TopicEpoch, request: m.Request}
	if p.name == "" {
		p.name = fmt.Sprintf("standalone-%d-%d", t.ledger, s.nextName)
		s.nextName++
	}
	version, err := s.addSchema(t.name, m.Schema)
	if err != nil {
		return err
	}
	ready, err := t.addProducer(p)
	if err != nil {
		return err
	}
	c.producers[p.id] = p
	delete(c.leftovers, p.id)
	if m.InitialSubscription != "" {
		t.subscription(m.InitialSubscription, wire.Earliest)
	}
	c.log.Debug("pulsartest: producer", "topic", t.name.String(), "producer", p.name)
	if !ready {
		c.send(&cmdProducerSuccess{Request: m.Request, Name: p.name, LastSequenceID: -1, SchemaVersion: version}, nil)
		return nil
	}
	p.ready(m.Request, version)
	return nil
}

func (m *cmdProducer) describe(_ *session, d *Command) {
	d.setTopic(m.Topic)
	d.Producer = m.Name
}

func (m *cmdProducer) answer(err error) wire.Command {
	if err == nil {
		return &cmdProducerSuccess{Request: m.Request, Name: m.Name, LastSequenceID: -1, Ready: true}
	}
	return result(m.Request, err)
}
