package doctor

import (
	"strings"

	"github.com/apache/pulsar-client-go/pulsar"
)

var producing = Check{
	Name: "producing", About: "Dead letters", Needs: AdminAPI,
	Asks:   "May this client publish to the retry and the dead letter topic?",
	Why:    "a message whose retry or dead letter cannot be published comes back again and again",
	Remedy: "`pulsar-admin topics grant-permission --role ROLE --actions produce,consume {dead}`, and for {retry}",
	look: func(v *visit) verdict {
		if v.Client == nil {
			return verdict{}
		}
		topics, err := v.existing(v.retry(), v.dead())
		if err != nil {
			return unknown(err)
		}
		if v.silent && len(topics) > 0 { // upstream would wait for a minute for each topic
			return verdict{Unknown, "the broker does not answer"}
		}
		found := verdict{}
		for _, topic := range topics {
			found = worse(found, v.produce(topic))
		}
		return found
	},
}

// produce opens a producer, and publishes nothing.
func (v *visit) produce(topic string) verdict {
	producer, err := v.Client.CreateProducer(pulsar.ProducerOptions{Topic: topic, DisableBatching: true})
	if err == nil {
		producer.Close()
		return ok("this client may publish")
	}
	if strings.Contains(err.Error(), "IncompatibleSchema") { // a consumer publishes with its own schema
		return verdict{Unknown, local(topic) + " asks for a schema"}
	}
	return problem("%s: %v", local(topic), err)
}
