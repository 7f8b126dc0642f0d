package pulsartest

import (
	"errors"
	"fmt"

	"github.com/pulsar-redelivery/redelivery/pulsartest/internal/wire"
)

// Each request of the protocol has a file, cmd_NAME.go, with its fields, its registration and its effect, and with the
// command that answers it. The methods of the interfaces below define the effect.

// A request is a command that a client may send.
type request interface {
	wire.Command
	// handle carries out the request, under the server's lock. If handle returns a failure, the session sends the
	// failure as the answer, or drops the failure if the request has no answer. Any other error closes the connection.
	handle(c *session) error
}

// Before the session takes the server's lock, a prepared command reads the data that follows it.
type prepared interface{ prepare(data []byte) error }

// The answer to an answered request says only that the request was done, or that it failed. answer returns nil if the
// client wants no answer.
type answered interface{ answer(err error) wire.Command }

// An asking request makes its answer in handle. If handle failed, refuse returns the answer.
type asking interface{ refuse(err error) wire.Command }

// A described command fills in the fields of a Command for hooks. Of other commands, hooks get only the type, the
// direction and the connection.
type described interface{ describe(c *session, d *Command) }

// handle carries out a command of the client. An error closes the connection.
func (c *session) handle(cmd wire.Command, data []byte) error {
	if p, ok := cmd.(prepared); ok {
		if err := p.prepare(data); err != nil {
			return err
		}
	}
	s := c.server
	s.mu.Lock()
	defer s.mu.Unlock()
	if c.gone || s.closed {
		return nil
	}
	r, ok := cmd.(request)
	if !ok {
		return fmt.Errorf("%s is not for a broker", cmd.Type())
	}
	if _, ok := cmd.(*cmdConnect); !ok && !c.connected {
		return errors.New("not connected")
	}
	err := r.handle(c)
	if f := (*failure)(nil); errors.As(err, &f) {
		c.answer(cmd, err)
		return nil
	}
	return err
}

// answer answers cmd: it was done, or failed with err. If err is nil and only the command's handle can make the answer,
// answer sends nothing and returns false.
func (c *session) answer(cmd wire.Command, err error) bool {
	var response wire.Command
	switch m := cmd.(type) {
	case answered:
		response = m.answer(err)
	case asking:
		if err == nil {
			return false
		}
		response = m.refuse(err)
	}
	if response != nil {
		c.send(response, nil)
	}
	return true
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
