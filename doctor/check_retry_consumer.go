package doctor

import "errors"

var retryConsumer = Check{
	Name: "retry-consumer", About: "Retry topic", Needs: AdminAPI,
	Asks: "Does the retry topic have the subscription too, with consumers?",
	Why:  "retries come back only to a consumer of the retry topic",
	Remedy: "`RetryEnable: true` or `WithReconsumeBackoff` in every consumer of {subscription}, with the same " +
		"`RetryLetterTopic`",
	look: func(v *visit) verdict {
		retry := v.retry()
		if retry == "" {
			return verdict{}
		}
		s, err := v.stats(retry)
		if errors.Is(err, errNoTopic) {
			return verdict{}
		}
		if err != nil {
			return unknown(err)
		}
		main, _, err := v.subscription()
		if err != nil {
			return verdict{}
		}
		sub, found := s.Subscriptions[v.Subscription]
		switch {
		case !found:
			return problem("%s has no subscription %s", local(retry), v.Subscription)
		case len(main.Consumers) > 0 && len(sub.Consumers) == 0:
			return problem("the topic has %s; the retry topic has none, and %d in its backlog",
				numberOfConsumers(len(main.Consumers)), sub.MsgBacklog)
		}
		return ok("%s, %d in the backlog, %d delayed", numberOfConsumers(len(sub.Consumers)), sub.MsgBacklog,
			sub.MsgDelayed)
	},
}
