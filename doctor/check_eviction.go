package doctor

var evicted = Check{
	Name: "eviction", About: "Topic and subscription", Needs: AdminAPI,
	Asks:   "Is the topic free of backlog quotas that evict messages?",
	Why:    "`consumer_backlog_eviction` skips the oldest messages: those that wait for redelivery",
	Remedy: "`pulsar-admin namespaces set-backlog-quota {namespace} -l LIMIT -p producer_request_hold`",
	look: func(v *visit) verdict {
		all, err := quotas.ofTopic(v, v.Topic)
		if err != nil {
			return unknown(err)
		}
		for _, kind := range sorted(all) {
			if said, limited := all[kind].limited(); limited && all[kind].Policy == evicts {
				return warning("%s: %s", kind, said)
			}
		}
		return ok("no quota evicts messages")
	},
}

const evicts = "consumer_backlog_eviction"
