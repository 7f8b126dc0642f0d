package doctor

import (
	"cmp"
	"errors"
	"fmt"
)

var subscriptionExists = Check{
	Name: "subscription", About: "Topic and subscription", Needs: AdminAPI,
	Asks:   "Does the subscription exist?",
	Why:    "a new subscription does not get earlier messages; an unknown name is often misspelled",
	Remedy: "`pulsar-admin topics create-subscription -s {subscription} {topic}`",
	look: func(v *visit) verdict {
		sub, found, err := v.subscription()
		if errors.Is(err, errNoTopic) { // check topic reports it
			return verdict{}
		}
		if err != nil {
			return unknown(err)
		}
		if found {
			return ok("%s, %s, %d in the backlog", cmp.Or(sub.Type, "no type before its first consumer"),
				numberOfConsumers(len(sub.Consumers)), sub.MsgBacklog)
		}
		s, err := v.stats(v.Topic)
		if err != nil {
			return unknown(err)
		}
		others := "the topic has none"
		if names := sorted(s.Subscriptions); len(names) > 0 {
			others = "the topic has " + few(names)
		}
		may, err := autoSubscriptions.ofTopic(v, v.Topic)
		if err != nil {
			return problem("the subscription does not exist (%s); whether the broker may create it: %s", others,
				unknown(err).text)
		}
		return problem("the subscription does not exist (%s), and the broker %s", others, map[bool]string{
			true: "creates it for its first consumer", false: "may not create it"}[may])
	},
}

func numberOfConsumers(n int) string {
	if n == 1 {
		return "1 consumer"
	}
	return fmt.Sprintf("%d consumers", n)
}
