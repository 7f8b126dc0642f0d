package pulsartest

import (
	"errors"
	"fmt"
	"strings"

	"github.com/pulsar-redelivery/redelivery/pulsartest/internal/wire"
)

const serverVersion = "Pulsar Test Broker"

// newestProtocol is the protocol version that the broker speaks.
const newestProtocol = 20

// handle carries out one command of the client. An error closes the
// connection; what the client did wrong politely is answered instead.
func (c *session) handle(cmd wire.Command, data []byte) error {
	var entry *entry
	if send, ok := cmd.(*wire.Send); ok {
		var err error
		entry, err = newEntry(send, data) // outside the lock: it takes a while
		if err != nil && !errors.Is(err, wire.ErrChecksum) {
			return err
		}
	}
	s := c.server
	s.mu.Lock()
	defer s.mu.Unlock()
	if c.gone || s.closed {
		return nil
	}
	if connect, ok := cmd.(*wire.Connect); ok {
		if c.connected {
			return errors.New("connected before")
		}
		c.connect(connect)
		return nil
	}
	if !c.connected {
		return errors.New("not connected")
	}
	switch m := cmd.(type) {
	case *wire.Ping:
		c.send(&wire.Pong{}, nil)
	case *wire.Pong, *wire.AuthResponse:
	case *wire.PartitionedMetadata:
		c.partitionedMetadata(m)
	case *wire.Lookup:
		c.lookup(m)
	case *wire.GetTopics:
		c.getTopics(m)
	case *wire.Producer:
		c.createProducer(m)
	case *wire.Send:
		return c.publish(m, entry)
	case *wire.CloseProducer:
		c.closeProducer(m)
	case *wire.Subscribe:
		c.subscribe(m)
	case *wire.Flow:
		c.flow(m)
	case *wire.Ack:
		c.ack(m)
	case *wire.Redeliver:
		c.redeliver(m)
	case *wire.Seek:
		c.seek(m)
	case *wire.Unsubscribe:
		c.unsubscribe(m)
	case *wire.CloseConsumer:
		c.closeConsumer(m)
	case *wire.GetLastMessageID:
		c.getLastMessageID(m)
	case *wire.ConsumerStats:
		return c.consumerStats(m)
	case *wire.GetSchema:
		c.getSchema(m)
	case *wire.GetOrCreateSchema:
		c.getOrCreateSchema(m)
	case *wire.TransactionsConnect:
		c.send(&wire.TransactionsConnectResponse{Request: m.Request, Error: wire.NotAllowedError,
			Message: "Transactions are not enabled."}, nil)
	default:
		return fmt.Errorf("%s is not for a broker", cmd.Type())
	}
	return nil
}

func (c *session) connect(m *wire.Connect) {
	c.connected, c.version = true, strings.ReplaceAll(m.ClientVersion, " ", "-")
	c.log.Debug("pulsartest: connected", "client", m.ClientVersion)
	c.send(&wire.Connected{
		ServerVersion:   serverVersion,
		ProtocolVersion: min(m.ProtocolVersion, newestProtocol),
		MaxMessageSize:  int32(c.server.maxMessageSize),
		Features:        &wire.FeatureFlags{},
	}, nil)
}

// fail answers a request with an error.
func (c *session) fail(request uint64, err error) {
	c.send(&wire.Error{Request: request, Error: codeOf(err), Message: err.Error()}, nil)
}

func (c *session) success(request uint64) {
	c.send(&wire.Success{Request: request}, nil)
}

// failure is an error with its code in the protocol.
type failure struct {
	code    wire.ServerError
	message string
}

func (f *failure) Error() string { return f.message }

func failf(code wire.ServerError, format string, args ...any) error {
	return &failure{code, fmt.Sprintf(format, args...)}
}

func codeOf(err error) wire.ServerError {
	if f := (*failure)(nil); errors.As(err, &f) {
		return f.code
	}
	return wire.UnknownError
}
