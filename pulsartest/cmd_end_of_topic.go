package pulsartest

import (
	"github.com/pulsar-redelivery/redelivery/pulsartest/internal/wire"
)

// cmdReachedEndOfTopic says that a terminated topic has no more messages.
type cmdReachedEndOfTopic struct{ Consumer uint64 }

var typeReachedEndOfTopic = wire.Register[cmdReachedEndOfTopic](27, "REACHED_END_OF_TOPIC")

func (*cmdReachedEndOfTopic) Type() wire.Type { return typeReachedEndOfTopic }

func (m *cmdReachedEndOfTopic) Fields(c *wire.Codec) { c.Uint64(1, wire.Required, 0, &m.Consumer) }

func (m *cmdReachedEndOfTopic) describe(c *session, d *Command) { d.setConsumer(c, m.Consumer) }
