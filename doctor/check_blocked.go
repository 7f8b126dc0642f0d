package doctor

var blocked = Check{
	Name: "blocked", About: "Limits", Needs: AdminAPI,
	Asks:   "Is every consumer well below its limit of unacknowledged messages?",
	Why:    "a blocked consumer gets nothing until it has acknowledged half of its limit",
	Remedy: "see why the messages wait: long delays (use a retry topic), or a handler that does not settle",
	look: func(v *visit) verdict {
		limit, err := maxUnackedOfConsumer.ofTopic(v, v.Topic)
		if err != nil {
			limit = 0
		}
		topics, err := v.existing(v.Topic, v.retry())
		if err != nil {
			return unknown(err)
		}
		found := verdict{}
		for _, topic := range topics {
			s, err := v.stats(topic)
			if err != nil {
				return unknown(err)
			}
			for name, part := range s.parts(topic) {
				sub := part.Subscriptions[v.Subscription]
				if sub.BlockedSubscriptionOnUnackedMsgs {
					found = worse(found, problem("the subscription on %s is blocked, with %d unacknowledged",
						local(name), sub.UnackedMessages))
				}
				for _, c := range sub.Consumers {
					switch {
					case c.BlockedConsumerOnUnackedMsgs:
						found = worse(found, problem("consumer %s of %s is blocked, with %d unacknowledged",
							c.ConsumerName, local(name), c.UnackedMessages))
					case limit > 0 && v.delays() && 10*c.UnackedMessages >= 9*limit:
						found = worse(found, warning("consumer %s of %s has %d unacknowledged, of %d", c.ConsumerName,
							local(name), c.UnackedMessages, limit))
					default:
						found = worse(found, ok("no consumer is blocked"))
					}
				}
			}
		}
		return found
	},
}
