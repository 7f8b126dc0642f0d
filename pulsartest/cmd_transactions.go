package pulsartest

import (
	"github.com/pulsar-redelivery/redelivery/pulsartest/internal/wire"
)

// cmdTransactionsConnect asks for the transaction coordinator.
type cmdTransactionsConnect struct{ Request, Coordinator uint64 }

var typeTransactionsConnect = wire.Register[cmdTransactionsConnect](62, "TC_CLIENT_CONNECT_REQUEST")

func (*cmdTransactionsConnect) Type() wire.Type { return typeTransactionsConnect }

func (m *cmdTransactionsConnect) Fields(c *wire.Codec) {
	c.Uint64(1, wire.Required, 0, &m.Request)
	c.Uint64(2, wire.Required, 0, &m.Coordinator)
}

// cmdTransactionsConnectResponse answers TransactionsConnect, always with an error.
type cmdTransactionsConnectResponse struct {
	Request uint64
	Error   wire.ServerError
	Message string
}

var typeTransactionsConnectResponse = wire.Register[cmdTransactionsConnectResponse](63, "TC_CLIENT_CONNECT_RESPONSE")

func (*cmdTransactionsConnectResponse) Type() wire.Type { return typeTransactionsConnectResponse }

func (m *cmdTransactionsConnectResponse) Fields(c *wire.Codec) {
	c.Uint64(1, wire.Required, 0, &m.Request)
	wire.Enum(c, 2, wire.Optional, &m.Error)
	c.String(3, wire.Optional, &m.Message)
}

func (m *cmdTransactionsConnect) handle(*session) error {
	return failf(wire.NotAllowedError, "Transactions are not enabled.")
}

func (m *cmdTransactionsConnect) answer(err error) wire.Command {
	if err == nil {
		return &cmdTransactionsConnectResponse{Request: m.Request}
	}
	return &cmdTransactionsConnectResponse{Request: m.Request, Error: codeOf(err), Message: err.Error()}
}
