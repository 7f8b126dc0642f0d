package doctor

import (
	"fmt"
	"time"
)

var subscriptionExpires = Check{
	Name: "expiration", About: "Topic and subscription", Needs: SuperUser,
	Asks:   "Do subscriptions stay while no consumer is connected?",
	Why:    "the broker deletes an expired subscription and its backlog, which may be dead letters",
	Remedy: "`pulsar-admin namespaces set-subscription-expiration-time --time 0 {namespace}`",
	look: func(v *visit) verdict {
		found, asked := ok("subscriptions do not expire"), map[string]bool{}
		for _, topic := range []string{v.Topic, v.retry(), v.dead()} { // each may be in a namespace of its own
			namespace := namespaceOf(topic)
			if topic == "" || asked[namespace] {
				continue
			}
			asked[namespace] = true
			minutes, err := expiration.ofTopic(v, topic)
			if err != nil {
				return unknown(err)
			}
			if minutes <= 0 {
				continue
			}
			status := Warning
			if dead := v.dead(); dead != "" && namespaceOf(dead) == namespace {
				status = Problem
			}
			found = worse(found, verdict{status,
				fmt.Sprintf("subscriptions of %s are deleted after %v without a consumer", namespace,
					time.Duration(minutes)*time.Minute)})
		}
		return found
	},
}
