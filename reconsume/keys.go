package reconsume

import (
	"time"

	"github.com/apache/pulsar-client-go/pulsar"
)

// atOnce is no delay, and has upstream publish a message in no batch.
var atOnce = time.UnixMilli(1)

// isAlone reports whether a message without a delay must not be in a batch: upstream writes no ordering key on a batch,
// so the broker would choose the Key_Shared consumer by the other key, or by none. A letter with a schema stays in a
// batch: only a batch has the schema's version.
func (r *Reconsumer) isAlone(msg *pulsar.ProducerMessage) bool {
	letter := msg.Properties[PropertyDeadLetterTime] != ""
	return msg.OrderingKey != "" && msg.DeliverAfter == 0 && len(msg.Payload) > 0 && !(letter && r.o.Schema != nil)
}
