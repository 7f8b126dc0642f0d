package redelivery

import "github.com/apache/pulsar-client-go/pulsar"

// Keep tells the Consumer that the application will hold msg for a long time, for instance in a queue of its own, and reports whether it fits
// the memory limit (WithMemoryLimit). If it fits, it counts toward the limit until it is settled. Messages that wait for redelivery are
// dropped to make room: the broker sends them again when they are due. If msg does not fit, the application should take no more messages
// until some are settled. A Worker calls Keep for messages that wait for others of their keys.
//
// For a message that the application no longer has, fits is true. Keep returns ErrClosed after the Consumer was closed or gave up
// reconnecting, and an error for a nil message. It sends nothing to the broker.
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
