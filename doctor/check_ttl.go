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
		inPlace, onRetryTopic, coversNacks := v.inPlace(), v.onRetryTopic(), v.Policy.DeadBeforeTTL > 0
		ttl, err := timeToLive.ofTopic(v, v.Topic)
		if err != nil {
			return unknown(err)
		}
		if ttl > 0 && coversNacks {
			inPlace = v.schedule("ack timeouts")
		}
		need := inPlace.total
		if !inPlace.ends {
			need = inPlace.longest
		}
		found := v.outlasts(ttl, need)
		if found.status == OK && ttl > 0 && !inPlace.ends {
			found = warning("%s; a message that keeps failing is dropped at its time to live, and does not become a "+
				"dead letter", found.text)
		}
		if retry := v.retry(); retry != "" {
			ttl, err := timeToLive.ofTopic(v, retry)
			if err != nil {
				return worse(found, unknown(err))
			}
			if ttl > 0 && coversNacks {
				onRetryTopic = v.schedule("retries").longest
			}
			if retries := v.outlasts(ttl, onRetryTopic); retries.status > OK {
				retries.text = "on the retry topic " + retries.text
				found = worse(found, retries)
			}
		}
		return found
	},
}

// outlasts returns a verdict that says whether a time to live, in seconds, is longer than need, and not shorter than
// the one that WithDeadBeforeTTL gives.
func (v *visit) outlasts(ttl int, need time.Duration) verdict {
	d, before := time.Duration(ttl)*time.Second, v.Policy.DeadBeforeTTL
	switch {
	case ttl <= 0:
		return ok("no time to live; a message waits for up to %v", need)
	case before > d:
		return problem("%v; WithDeadBeforeTTL is %v, want at most the time to live: a message may be dropped before "+
			"it becomes a dead letter", d, before)
	case before > 0 && need < d:
		return ok("%v; a nacked message becomes a dead letter before %v are over", d, before)
	}
	return judge(d > need, Problem, "%v; a message waits for up to %v", d, need)
}
