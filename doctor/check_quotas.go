package doctor

import "time"

var backlogQuotas = Check{
	Name: "quotas", About: "Dead letters", Needs: AdminAPI,
	Asks:   "Are the retry and the dead letter topic free of backlog quotas?",
	Why:    "their messages wait on purpose. At a quota's limit the broker refuses, delays or deletes them",
	Remedy: "`pulsar-admin namespaces remove-backlog-quota {namespace}`, or a namespace of their own without a quota",
	look: func(v *visit) verdict {
		found := verdict{}
		for _, topic := range []string{v.retry(), v.dead()} { // they need not exist yet
			if topic == "" {
				continue
			}
			all, err := quotas.ofTopic(v, topic)
			if err != nil {
				return unknown(err)
			}
			found = worse(found, ok("no backlog quota"))
			for _, kind := range sorted(all) {
				said, limited := all[kind].limited()
				if !limited {
					continue
				}
				status := Warning
				if v.isNearlyFull(topic, all[kind]) {
					status = Problem
				}
				found = worse(found, verdict{status, local(topic) + " has " + said})
			}
		}
		return found
	},
}

// isNearlyFull reports whether at least four fifths of a quota are used.
func (v *visit) isNearlyFull(topic string, q quota) bool {
	s, err := v.stats(topic)
	if err != nil {
		return false
	}
	if q.LimitSize > 0 && s.BacklogSize*5 >= q.LimitSize*4 {
		return true
	}
	for _, sub := range s.Subscriptions {
		if q.LimitTime > 0 && sub.oldest()*5 >= time.Duration(q.LimitTime)*time.Second*4 {
			return true
		}
	}
	return false
}
