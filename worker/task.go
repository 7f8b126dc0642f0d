package worker

import (
	"github.com/apache/pulsar-client-go/pulsar"

	"github.com/pulsar-redelivery/redelivery"
)

// task is a message that was taken and is not settled yet.
type task struct {
	msg   pulsar.Message
	beat  *heartbeat // nil for none
	lane  *lane      // of its key; nil without key order, and without a key
	here  uint32     // local retries of this delivery
	more  uint32     // deliveries that the Consumer does not know of: it was tried again here
	kept  bool       // it failed, and was kept
	aside bool       // it was put aside in an outage
	paid  bool       // the rate limit's token for its next call was taken
}

// counted returns the message with the redelivery count that counts.
func (t *task) counted() pulsar.Message {
	if t.more == 0 {
		return t.msg
	}
	return retried{t.msg, t.msg.RedeliveryCount() + t.more}
}

// retried is a message that was tried again without being nacked. The Consumer goes by its count.
type retried struct {
	pulsar.Message
	count uint32
}

func (r retried) RedeliveryCount() uint32 { return r.count }

// isLast reports whether no delivery of the message is left. A Consumer that is closed does not say.
func (t *task) isLast(c *redelivery.Consumer) bool {
	d, err := c.Delivery(t.counted())
	return err == nil && d.Last
}
