package worker

import (
	"time"

	"github.com/apache/pulsar-client-go/pulsar"

	"github.com/pulsar-redelivery/redelivery"
)

// task is a message that was taken and is not settled yet.
type task struct {
	msg     pulsar.Message
	lane    *lane          // of its key; nil without key order, and without a key
	newer   pulsar.Message // a redelivery that arrived while the handler had msg; nil for none
	retries uint32         // local retries of this delivery
	tries   uint32         // attempts that the Consumer has not counted, since the message was not nacked after them
	failed  bool           // it failed in this Worker, and was not nacked
	waited  bool           // it has waited: in an outage, or in a slot that handled other messages
	gone    bool           // it was settled without its handler, which is stuck
}

// counted returns the message with a redelivery count that includes tries.
func (t *task) counted() pulsar.Message {
	if t.tries == 0 {
		return t.msg
	}
	return retried{t.msg, t.count()}
}

func (t *task) count() uint32 { return t.msg.RedeliveryCount() + t.tries }

// retried is a message that was tried again without a nack. Its redelivery count includes these tries, and the Consumer
// uses that count.
type retried struct {
	pulsar.Message
	count uint32
}

func (r retried) RedeliveryCount() uint32 { return r.count }
func (r retried) Unwrap() pulsar.Message  { return r.Message }

// isLast reports whether this is the last delivery of the message by MaxDeliveries. It returns false if the Consumer is
// closed.
func (t *task) isLast(c *redelivery.Consumer) bool {
	d, err := c.Delivery(t.counted())
	return err == nil && d.Last
}

// age returns how long ago the message was published. A retry is as old as its original message.
func (t *task) age(c *redelivery.Consumer) time.Duration {
	published := t.msg.PublishTime()
	if d, err := c.Delivery(t.msg); err == nil && !d.FirstPublished.IsZero() {
		published = d.FirstPublished
	}
	return time.Since(published)
}

// takeNewer replaces the handler's delivery by a redelivery that arrived while the handler was at work, if any.
func (t *task) takeNewer() {
	if t.newer != nil {
		t.msg, t.newer = t.newer, nil
	}
}
