package doctor

import (
	"cmp"
	"errors"
)

var subscriptionExists = Check{
	Name: "subscription", About: "Topic and subscription", Needs: AdminAPI,
	Asks:   "Does the subscription exist, or may the broker create it?",
	Why:    "a message that is published before there is a subscription is not delivered to it",
	Remedy: "`pulsar-admin topics create-subscription -s {subscription} {topic}`",
	look: func(v *visit) verdict {
		sub, found, err := v.subscription()
		if err != nil && !errors.Is(err, errNoTopic) {
			return unknown(err)
		}
		if found {
			return ok("%s, %d consumers, %d in the backlog", cmp.Or(sub.Type, "no type before its first consumer"), len(sub.Consumers), sub.MsgBacklog)
		}
		may, err := autoSubscriptions.ofTopic(v, v.Topic)
		if err != nil {
			return unknown(err)
		}
		return judge(may, Problem, "the subscription does not exist, and the broker %s", map[bool]string{true: "creates it for its first consumer",
			false: "may not create it"}[may])
	},
}
