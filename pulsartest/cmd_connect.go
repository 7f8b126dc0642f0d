package pulsartest

import (
	"errors"
	"strings"

	"github.com/pulsar-redelivery/redelivery/pulsartest/internal/wire"
)

// cmdConnect opens a session.
type cmdConnect struct {
	ClientVersion   string
	ProtocolVersion int32
	AuthMethod      string
	Features        *wire.FeatureFlags
}

var typeConnect = wire.Register[cmdConnect](2, "CONNECT")

func (*cmdConnect) Type() wire.Type { return typeConnect }

func (m *cmdConnect) Fields(c *wire.Codec) {
	c.String(1, wire.Required, &m.ClientVersion)
	c.Int32(4, wire.Optional, 0, &m.ProtocolVersion)
	c.String(5, wire.Optional, &m.AuthMethod)
	wire.One(c, 10, wire.Optional, &m.Features)
}

// cmdConnected answers Connect.
type cmdConnected struct {
	ServerVersion   string
	ProtocolVersion int32
	MaxMessageSize  int32
	Features        *wire.FeatureFlags
}

var typeConnected = wire.Register[cmdConnected](3, "CONNECTED")

func (*cmdConnected) Type() wire.Type { return typeConnected }

func (m *cmdConnected) Fields(c *wire.Codec) {
	c.String(1, wire.Required, &m.ServerVersion)
	c.Int32(2, wire.Optional, 0, &m.ProtocolVersion)
	c.Int32(3, wire.Optional, 0, &m.MaxMessageSize)
	wire.One(c, 4, wire.Optional, &m.Features)
}

const serverVersion = "Pulsar Test Broker"

// newestProtocol is the protocol version that the broker speaks.
const newestProtocol = 20

func (m *cmdConnect) handle(c *session) error {
	if c.connected {
		return errors.New("connected before")
	}
	c.connected, c.version = true, strings.ReplaceAll(m.ClientVersion, " ", "-")
	c.log.Debug("pulsartest: connected", "client", m.ClientVersion)
	c.send(&cmdConnected{
		ServerVersion:   serverVersion,
		ProtocolVersion: min(m.ProtocolVersion, newestProtocol),
		MaxMessageSize:  int32(c.server.maxMessageSize),
		Features:        &wire.FeatureFlags{},
	}, nil)
	return nil
}

func (*cmdConnect) refuse(err error) wire.Command { return result(noRequest, err) }
