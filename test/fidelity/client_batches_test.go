package fidelity

import (
	"fmt"
	"time"

	"github.com/apache/pulsar-client-go/pulsar"
)

// clientBatchNacks returns scenarios that nack one message of a batch and acknowledge the others. They combine brokers
// and clients with and without batch-index acknowledgement. If the broker or the client has none, acknowledged messages
// come again.
func clientBatchNacks() []scenario {
	var all []scenario
	for _, broker := range []bool{false, true} {
		for _, client := range []bool{false, true} {
			for _, kind := range []pulsar.SubscriptionType{pulsar.Shared, pulsar.Exclusive} {
				name := fmt.Sprintf("client-nack-in-a-batch-%s",
					map[pulsar.SubscriptionType]string{pulsar.Shared: "shared", pulsar.Exclusive: "exclusive"}[kind])
				if client {
					name += "-index-acks"
				}
				if broker {
					name += "-indexed"
				}
				all = append(all, scenario{name: name, indexed: broker, run: func(s *script) {
					c := s.client()
					k := s.consumer(c, pulsar.ConsumerOptions{Type: kind, NackRedeliveryDelay: time.Second,
						EnableBatchIndexAcknowledgment: client,
						AckWithResponse:                true})
					s.publish(s.producer(c, oneBatch), 4)
					nacks := 0
					s.take("consumer", k, func(m pulsar.Message) {
						if string(m.Payload()) == "2" && nacks < 2 {
							nacks++
							k.Nack(m)
							return
						}
						s.ackAll(k)(m)
					})
					s.backlog()
				}})
			}
		}
	}
	return all
}
