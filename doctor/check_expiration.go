package doctor

import "time"

var subscriptionExpires = Check{
	Name: "expiration", About: "Topic and subscription", Needs: SuperUser,
	Asks:   "Do subscriptions stay when nobody is connected?",
	Why:    "an expired subscription is deleted with all that it has not delivered: dead letters usually wait without a consumer",
	Remedy: "`pulsar-admin namespaces remove-subscription-expiration-time {namespace}`",
	look: func(v *visit) verdict {
		minutes, err := expiration.ofTopic(v, v.Topic)
		if err != nil {
			return unknown(err)
		}
		if minutes <= 0 {
			return ok("subscriptions do not expire")
		}
		after, status := time.Duration(minutes)*time.Minute, Warning
		if v.dead() != "" {
			status = Problem
		}
		return verdict{status, "without a consumer they are deleted after " + after.String()}
	},
}
