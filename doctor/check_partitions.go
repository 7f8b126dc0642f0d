package doctor

var partitionsAlike = Check{
	Name: "partitions", About: "Topic and subscription", Needs: AdminAPI,
	Asks: "Does every partition have the subscription, with the same number of consumers?",
	Why: "a partition without consumers is not read. pulsar-client-go finds new partitions once a minute, and " +
		"may give up all partitions if the broker refuses a new one",
	Remedy: "restart the consumers; `pulsar-admin topics create-missed-partitions {topic}`",
	look: func(v *visit) verdict {
		n, err := v.partitions(v.Topic)
		if err != nil || n == 0 {
			return verdict{}
		}
		s, err := v.stats(v.Topic)
		if err != nil {
			return unknown(err)
		}
		if len(s.Partitions) == 0 && len(s.Subscriptions) == 0 {
			return ok("no partition is in use yet")
		}
		with, fewest, most := 0, -1, 0
		for _, part := range s.Partitions {
			if sub, found := part.Subscriptions[v.Subscription]; found {
				with++
				consumers := len(sub.Consumers)
				most = max(most, consumers)
				if fewest < 0 || consumers < fewest {
					fewest = consumers
				}
			}
		}
		switch {
		case with == 0:
			return verdict{} // check subscription reports it
		case with < n:
			return problem("the subscription is on %d of %d partitions", with, n)
		}
		return judge(fewest == most, Warning, "each partition has %d to %d consumers", fewest, most)
	},
}
