package doctor

import "time"

var deadLettersTTL = Check{
	Name: "dead-letters-ttl", About: "Dead letters", Needs: AdminAPI,
	Asks:   "Do dead letters stay until they are read?",
	Why:    "the namespace's time to live deletes dead letters that wait",
	Remedy: "`pulsar-admin topicPolicies set-message-ttl {dead} -t 0`, or a namespace of its own for dead letters",
	look: func(v *visit) verdict {
		dead := v.dead()
		if dead == "" {
			return verdict{}
		}
		ttl, err := timeToLive.ofTopic(v, dead)
		if err != nil {
			return unknown(err)
		}
		if ttl <= 0 {
			return ok("no time to live")
		}
		return warning("the broker deletes unread dead letters after %v", time.Duration(ttl)*time.Second)
	},
}
