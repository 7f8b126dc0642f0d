package doctor

import (
	"fmt"

	"github.com/pulsar-redelivery/redelivery/internal/admin"
)

var messageSize = Check{
	Name: "message-size", About: "Dead letters", Needs: AdminAPI,
	Asks: "Do the retry and the dead letter topic take messages as large as the topic does?",
	Why: "the broker refuses larger messages, and pulsar-client-go reports no refusal: the call waits until a " +
		"timeout",
	Remedy: "`pulsar-admin topicPolicies remove-max-message-size {dead}`, and for {retry}",
	look: besideOwn(func(v *visit, topics []string) verdict {
		own, err := v.maxMessageSize(v.Topic)
		if err != nil {
			return unknown(err)
		}
		found := ok("they take messages as large as the topic does")
		for _, topic := range topics {
			most, err := v.maxMessageSize(topic)
			if err != nil {
				return unknown(err)
			}
			if most > 0 && (own == 0 || most < own) {
				theirs := "as large as the broker allows"
				if own > 0 {
					theirs = fmt.Sprintf("of up to %d bytes", own)
				}
				found = worse(found, problem("%s takes messages of up to %d bytes, the topic takes messages %s",
					local(topic), most, theirs))
			}
		}
		return found
	}),
}

// maxMessageSize returns a topic's own limit; 0 if it has none, or if the broker does not have such limits.
func (v *visit) maxMessageSize(topic string) (bytes int, err error) {
	err = v.get(admin.Topic(topic)+"/maxMessageSize", &bytes)
	if admin.NotFound(err) || notAllowed(err) {
		err = nil
	}
	return bytes, err
}
