package doctor

var inactiveTopics = Check{
	Name: "inactive-topics", About: "Dead letters", Needs: AdminAPI,
	Asks: "Do the retry and the dead letter topic stay when nobody uses them?",
	Why: "a topic that is deleted as soon as all is read takes its subscriptions with it: the next dead letter finds none, if the options have no " +
		"`InitialSubscriptionName`",
	Remedy: "`pulsar-admin namespaces set-inactive-topic-policies {namespace} --enable-delete-while-inactive --max-inactive-duration 1d " +
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
			deletes := p.Deletes && p.Mode == "delete_when_subscriptions_caught_up"
			found = worse(found, judge(!deletes || v.InitialSubscriptionName != "", Warning, "%s", map[bool]string{true: "an unused topic is deleted when all of it is read",
				false: "unused topics stay"}[deletes]))
		}
		return found
	},
}
