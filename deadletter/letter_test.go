package deadletter

import (
	"testing"

	"github.com/stretchr/testify/assert"
)

// pulsar-client-go writes no REAL_SUBSCRIPTION. Only the default name of a dead letter topic, which ends in -DLQ, has
// the subscription in it.
func TestSubscriptionOfALetterIsReadOnlyFromADefaultTopicName(t *testing.T) {
	for dlq, want := range map[string]string{
		"persistent://public/default/orders-billing-DLQ": "billing",
		"persistent://public/default/orders-dead":        "",
		"persistent://public/default/other-billing-DLQ":  "",
	} {
		l := Letter{Properties: map[string]string{"REAL_TOPIC": "persistent://public/default/orders",
			"ORIGIN_MESSAGE_ID": "1:2:0:0"}}
		l.setOrigin(dlq)
		assert.Equal(t, want, l.Subscription, dlq)
	}
}
