package reconsume

import (
	"time"

	"github.com/apache/pulsar-client-go/pulsar"
)

// atOnce is no delay, and has upstream publish a message in no batch.
var atOnce = time.UnixMilli(1)

// isAlone reports whether a message without a delay has to be in no batch: upstream does not say the ordering key of a batch, and Key_Shared
// consumers would get the message by its other key, or by none. A letter with a schema stays in a batch, since only that says the version.
func (r *Reconsumer) isAlone(msg *pulsar.ProducerMessage) bool {
	letter := msg.Properties[PropertyDeadLetterTime] != ""
	return msg.OrderingKey != "" && msg.DeliverAfter == 0 && len(msg.Payload) > 0 && !(letter && r.o.Schema != nil)
}
