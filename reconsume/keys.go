package reconsume

import (
	"time"

	"github.com/apache/pulsar-client-go/pulsar"
)

// atOnce is a delivery time in the past. It delays nothing, but keeps upstream from putting a message into a batch.
var atOnce = time.UnixMilli(1)

// isBatched reports whether upstream may put a message into a batch.
func isBatched(msg *pulsar.ProducerMessage) bool {
	return msg.DeliverAfter == 0 && msg.DeliverAt.IsZero()
}

// mustNotBatch reports whether a message without a delay must not be in a batch: upstream writes no ordering key on a
// batch, so the broker would choose the Key_Shared consumer by the message's key, or by none. A letter with a schema
// stays in a batch: only a batch has the schema's version. So does an empty message that is encrypted (see
// topic.encrypted); other empty messages have a producer without batches.
func (r *Reconsumer) mustNotBatch(msg *pulsar.ProducerMessage) bool {
	letter := msg.Properties[PropertyDeadLetterTime] != ""
	return msg.OrderingKey != "" && msg.DeliverAfter == 0 && len(msg.Payload) > 0 && !(letter && r.o.Schema != nil)
}
