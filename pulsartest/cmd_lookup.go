package pulsartest

import (
	"github.com/pulsar-redelivery/redelivery/pulsartest/internal/wire"
)

// cmdLookup asks which broker serves a topic.
type cmdLookup struct {
	Topic   string
	Request uint64
}

var typeLookup = wire.Register[cmdLookup](23, "LOOKUP")

func (*cmdLookup) Type() wire.Type { return typeLookup }

func (m *cmdLookup) Fields(c *wire.Codec) {
	c.String(1, wire.Required, &m.Topic)
	c.Uint64(2, wire.Required, 0, &m.Request)
}

// cmdLookupResponse answers Lookup. Clients treat a response with an Error as a failure. The number of UnknownError is
// 0, and the codec omits zeros, so clients would take UnknownError for a success. Therefore handle never returns
// UnknownError.
type cmdLookupResponse struct {
	URL           string
	Response      wire.LookupType
	Request       uint64
	Authoritative bool
	Error         wire.ServerError
	Message       string
	ByServiceURL  bool // the client connects to the address that it sent the lookup to
}

var typeLookupResponse = wire.Register[cmdLookupResponse](24, "LOOKUP_RESPONSE")

func (*cmdLookupResponse) Type() wire.Type { return typeLookupResponse }

func (m *cmdLookupResponse) Fields(c *wire.Codec) {
	c.String(1, wire.Optional, &m.URL)
	wire.Enum(c, 3, wire.Optional, &m.Response)
	c.Uint64(4, wire.Required, 0, &m.Request)
	c.Bool(5, wire.Optional, false, &m.Authoritative)
	wire.Enum(c, 6, wire.Optional, &m.Error)
	c.String(7, wire.Optional, &m.Message)
	c.Bool(8, wire.Optional, false, &m.ByServiceURL)
}

// handle answers that this broker serves the topic. The client keeps using the address to which it is connected, which
// may be a proxy's address.
func (m *cmdLookup) handle(c *session) error {
	n, err := parseTopic(m.Topic)
	if err != nil {
		return failf(wire.InvalidTopicName, "%v", err)
	}
	if c.server.noAutoCreate || !c.server.namespaces[n.namespace] {
		if _, err := c.server.topic(n.String(), false); err != nil {
			return err
		}
	}
	c.send(&cmdLookupResponse{Request: m.Request, Response: wire.LookupConnect, Authoritative: true,
		URL: c.server.URL(), ByServiceURL: true}, nil)
	return nil
}

func (m *cmdLookup) describe(_ *session, d *Command) { d.setTopic(m.Topic) }

func (m *cmdLookup) refuse(err error) wire.Command {
	return &cmdLookupResponse{Request: m.Request, Response: wire.LookupFailed, Error: codeOf(err), Message: err.Error()}
}
