package main

import (
	"context"
	"fmt"
	"strconv"

	"github.com/apache/pulsar-client-go/pulsar"
)

// wrapper is an application's message type: a decoded message with the received message inside.
type wrapper struct{ pulsar.Message }

func (m wrapper) Payload() []byte { return append(m.Message.Payload()[:6:6], " decoded"...) }

// next takes a message from Chan or Receive, as the work says.
func (c *consumer) next(ctx context.Context) (msg pulsar.Message, err error) {
	if c.work.Chan {
		select {
		case msg = <-c.Chan():
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	} else if msg, err = c.Receive(ctx); err != nil {
		return nil, err
	}
	if c.work.Wrap {
		msg = wrapper{msg}
	}
	return msg, nil
}

func number(payload []byte) int {
	n, err := strconv.Atoi(string(payload[:6]))
	if err != nil {
		panic(fmt.Sprintf("a message that was never published: %q", payload))
	}
	return n
}
