package pulsartest

import (
	"github.com/pulsar-redelivery/redelivery/pulsartest/internal/wire"
)

// cmdSuccess answers a request that has nothing to return.
type cmdSuccess struct{ Request uint64 }

var typeSuccess = wire.Register[cmdSuccess](13, "SUCCESS")

func (*cmdSuccess) Type() wire.Type { return typeSuccess }

func (m *cmdSuccess) Fields(c *wire.Codec) { c.Uint64(1, wire.Required, 0, &m.Request) }

// cmdError refuses a request.
type cmdError struct {
	Request uint64
	Error   wire.ServerError
	Message string
}

var typeError = wire.Register[cmdError](14, "ERROR")

func (*cmdError) Type() wire.Type { return typeError }

func (m *cmdError) Fields(c *wire.Codec) {
	c.Uint64(1, wire.Required, 0, &m.Request)
	wire.Enum(c, 2, wire.Required, &m.Error)
	c.String(3, wire.Required, &m.Message)
}

// result returns the answer to a request that has nothing to return.
func result(request uint64, err error) wire.Command {
	if err != nil {
		return &cmdError{Request: request, Error: codeOf(err), Message: err.Error()}
	}
	return &cmdSuccess{Request: request}
}
