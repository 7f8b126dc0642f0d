package doctor

var inactiveTopics = Check{
	Name: "inactive-topics", About: "Dead letters", Needs: AdminAPI,
	Asks: "Do the retry and the dead letter topic stay while they are unused?",
	Why:  "if the broker deletes a topic when all its messages are read, it deletes the topic's subscriptions too",
	Remedy: "`pulsar-admin namespaces set-inactive-topic-policies {namespace} --enable-delete-while-inactive " +
		"--max-inactive-duration 1d " +
		"--delete-mode delete_when_no_subscriptions`",
	look: func(v *visit) verdict {
		found := verdict{}
		for _, topic := range []string{v.retry(), v.dead()} {
			if topic == "" {
				continue
			}
			p, err := inactivity.ofTopic(v, topic)
			if err != nil {
				return unknown(err)
			}
			if !p.Deletes || p.Mode != "delete_when_subscriptions_caught_up" {
				found = worse(found, ok("unused topics stay"))
				continue
			}
			recreated, err := v.wouldRecreate(topic)
			if err != nil {
				return unknown(err)
			}
			said := "an unused topic is deleted when all its messages are read"
			if recreated {
				said += ", and created again with subscription " + v.InitialSubscriptionName
			}
			found = worse(found, judge(recreated, Warning, "%s", said))
		}
		return found
	},
}

// wouldRecreate reports whether the broker would create a deleted topic again, with the subscription
// InitialSubscriptionName.
func (v *visit) wouldRecreate(topic string) (bool, error) {
	if v.InitialSubscriptionName == "" {
		return false, nil
	}
	topics, err := autoTopics.ofTopic(v, topic)
	if err != nil || !topics {
		return false, err
	}
	return autoSubscriptions.ofTopic(v, topic)
}
