package doctor

var unackedLimits = Check{
	Name: "unacked-limits", About: "Limits", Needs: AdminAPI,
	Asks: "Do waiting and prefetched messages fit the broker's limits?",
	Why:  "a whole batch counts until its last message is acknowledged. At the limit the broker sends nothing more",
	Remedy: "`pulsar-admin namespaces set-max-unacked-messages-per-consumer {namespace} -c N`, " +
		"`pulsar-admin namespaces set-max-unacked-messages-per-subscription {namespace} -c N`; or a smaller " +
		"`ReceiverQueueSize`; a retry topic, or fewer deliveries",
	look: func(v *visit) verdict {
		if !v.delays() {
			return verdict{}
		}
		perConsumer, err := maxUnackedOfConsumer.ofTopic(v, v.Topic)
		if err != nil {
			return unknown(err)
		}
		total, err := maxUnackedOfSubscription.ofTopic(v, v.Topic)
		if err != nil {
			return unknown(err)
		}
		tooSmall := verdict{}
		if queue := v.Consumer.ReceiverQueueSize; perConsumer > 0 && perConsumer < queue {
			tooSmall = warning("the limit of a consumer is %d, below its ReceiverQueueSize of %d: the broker blocks "+
				"the consumer before its queue is full", perConsumer, queue)
		}
		if queue := v.Consumer.ReceiverQueueSize; total > 0 && total < queue {
			tooSmall = worse(tooSmall, warning("the limit of the subscription is %d, below the ReceiverQueueSize of "+
				"%d: the broker blocks it before the queue of one consumer is full", total, queue))
		}
		waiting, rate, wait := v.waiting()
		if rate == 0 {
			return worse(tooSmall, ok("the limits are %d of a consumer and %d of a subscription; the broker's "+
				"figures, up to a minute old, show no messages published", perConsumer, total))
		}
		waiting *= max(1, v.messagesPerEntry())
		found := func(n, limit int, of string) verdict {
			if limit <= 0 {
				return ok("no limit of a %s", of)
			}
			status := Warning
			if n > limit {
				status = Problem
			}
			return judge(2*n <= limit, status,
				"about %d of at most %d unacknowledged messages of a %s, at %.3g messages a second, if %g%% of them "+
					"fail for %v", n, limit, of, rate, 100*v.Load.Failing, wait)
		}
		return worse(tooSmall, worse(found(waiting/max(1, v.instances()), perConsumer, "consumer"),
			found(waiting, total, "subscription")))
	},
}
