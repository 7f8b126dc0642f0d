package pulsartest

import (
	"fmt"

	"github.com/pulsar-redelivery/redelivery/pulsartest/internal/wire"
)

// cmdConsumerStats asks for the figures of a consumer.
type cmdConsumerStats struct {
	Request  uint64
	Consumer uint64
}

var typeConsumerStats = wire.Register[cmdConsumerStats](25, "CONSUMER_STATS")

func (*cmdConsumerStats) Type() wire.Type { return typeConsumerStats }

func (m *cmdConsumerStats) Fields(c *wire.Codec) {
	c.Uint64(1, wire.Required, 0, &m.Request)
	c.Uint64(4, wire.Required, 0, &m.Consumer)
}

// cmdConsumerStatsResponse answers ConsumerStats.
type cmdConsumerStatsResponse struct {
	Request uint64
	Error   wire.ServerError
	Message string
	Name    string
	Permits uint64
	Unacked uint64
	Blocked bool
	SubType string
	Backlog uint64
}

var typeConsumerStatsResponse = wire.Register[cmdConsumerStatsResponse](26, "CONSUMER_STATS_RESPONSE")

func (*cmdConsumerStatsResponse) Type() wire.Type { return typeConsumerStatsResponse }

func (m *cmdConsumerStatsResponse) Fields(c *wire.Codec) {
	c.Uint64(1, wire.Required, 0, &m.Request)
	wire.Enum(c, 2, wire.Optional, &m.Error)
	c.String(3, wire.Optional, &m.Message)
	c.String(7, wire.Optional, &m.Name)
	c.Uint64(8, wire.Optional, 0, &m.Permits)
	c.Uint64(9, wire.Optional, 0, &m.Unacked)
	c.Bool(10, wire.Optional, false, &m.Blocked)
	c.String(13, wire.Optional, &m.SubType)
	c.Uint64(15, wire.Optional, 0, &m.Backlog)
}

// handle closes the connection if the client has no such consumer, as Pulsar 4.0.7 does.
func (m *cmdConsumerStats) handle(c *session) error {
	k, ok := c.consumers[m.Consumer]
	if !ok {
		return fmt.Errorf("consumer %d is unknown", m.Consumer)
	}
	c.send(&cmdConsumerStatsResponse{Request: m.Request, Name: k.name, Permits: uint64(max(k.permits, 0)),
		Unacked: uint64(k.unacked),
		Blocked: k.blocked, SubType: k.sub.kind.String(), Backlog: uint64(k.sub.cursor.backlog(len(k.sub.topic.log)))},
		nil)
	return nil
}

func (m *cmdConsumerStats) describe(c *session, d *Command) { d.setConsumer(c, m.Consumer) }

func (m *cmdConsumerStats) refuse(err error) wire.Command {
	return &cmdConsumerStatsResponse{Request: m.Request, Error: codeOf(err), Message: err.Error()}
}
