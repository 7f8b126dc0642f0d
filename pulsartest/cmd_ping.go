package pulsartest

import (
	"github.com/pulsar-redelivery/redelivery/pulsartest/internal/wire"
)

// cmdPing asks for a Pong.
type cmdPing struct{}

var typePing = wire.Register[cmdPing](18, "PING")

func (*cmdPing) Type() wire.Type { return typePing }

func (*cmdPing) Fields(*wire.Codec) {}

// cmdPong answers a Ping.
type cmdPong struct{}

var typePong = wire.Register[cmdPong](19, "PONG")

func (*cmdPong) Type() wire.Type { return typePong }

func (*cmdPong) Fields(*wire.Codec) {}

func (*cmdPing) handle(c *session) error {
	c.send(&cmdPong{}, nil)
	return nil
}

func (*cmdPong) handle(*session) error { return nil }
