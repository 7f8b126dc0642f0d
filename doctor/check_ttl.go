package doctor

import "time"

var timeToLives = Check{
	Name: "ttl", About: "Topic and subscription", Needs: AdminAPI,
	Asks: "Is the time to live longer than a message waits?",
	Why: "the broker acknowledges a message that is older than the time to live, so it is neither redelivered nor " +
		"made a dead letter",
	Remedy: "`pulsar-admin namespaces set-message-ttl {namespace} -ttl {ttl}`; fewer or shorter delays; or " +
		"`WithDeadBeforeTTL`",
	look: func(v *visit) verdict {
		ttl, err := timeToLive.ofTopic(v, v.Topic)
		if err != nil {
			return unknown(err)
		}
		s := v.inPlace()
		need := s.total
		if !s.ends {
			need = s.longest
		}
		found := outlasts(ttl, need)
		if found.status == OK && ttl > 0 && !s.ends {
			found = warning("%s; a message that keeps failing is dropped at its time to live, and does not become a "+
				"dead letter", found.text)
		}
		if retry := v.retry(); retry != "" {
			ttl, err := timeToLive.ofTopic(v, retry)
			if err != nil {
				return worse(found, unknown(err))
			}
			if retries := outlasts(ttl, v.onRetryTopic()); retries.status > OK {
				retries.text = "on the retry topic " + retries.text
				found = worse(found, retries)
			}
		}
		return found
	},
}

// outlasts returns a verdict that says whether a time to live, in seconds, is longer than need.
func outlasts(ttl int, need time.Duration) verdict {
	if ttl <= 0 {
		return ok("no time to live; a message waits for up to %v", need)
	}
	d := time.Duration(ttl) * time.Second
	return judge(d > need, Problem, "%v; a message waits for up to %v", d, need)
}
