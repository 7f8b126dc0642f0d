package redelivery

import "github.com/apache/pulsar-client-go/pulsar"

// Keep tells the Consumer that the application is to have msg for long, for instance in a queue of its own, and reports whether that
// fits the memory limit (WithMemoryLimit). What fits counts until the message is settled. Messages that wait for redelivery make room: the
// broker sends them again when they are due. If msg does not fit, the application should take no more messages until some are settled.
// A Worker calls Keep for messages that wait for others of their keys.
//
// A message that the application no longer has fits. Keep returns ErrClosed after the Consumer was closed or gave up reconnecting, and an
// error for a nil message. It is safe for concurrent use, and asks the broker nothing.
func (c *Consumer) Keep(msg pulsar.Message) (fits bool, err error) {
	n, err := c.nameOf(msg)
	if err != nil {
		return false, err
	}
	if c.life.ended.Err() != nil {
		return false, ErrClosed
	}
	return c.ledger.Hold(n, c.received(msg)), nil
}
