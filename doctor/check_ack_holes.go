package doctor

var ackHoles = Check{
	Name: "ack-holes", About: "Limits", Needs: SuperUser,
	Asks: "Does the broker store all acknowledgements of messages after a waiting one?",
	Why: "the broker stores these acknowledgements as ranges, and keeps only a limited number of ranges across " +
		"its restart or an unload",
	Remedy: "acknowledge, reconsume or dead-letter the longest-waiting messages; " +
		"raise `managedLedgerMaxUnackedRangesToPersist` in `broker.conf`",
	look: func(v *visit) verdict {
		s, err := v.stats(v.Topic)
		if err != nil {
			return verdict{}
		}
		conf, err := v.broker()
		if err != nil {
			return unknown(err)
		}
		limit := intOf(conf, "managedLedgerMaxUnackedRangesToPersist")
		if limit <= 0 {
			return verdict{}
		}
		found := verdict{}
		for name, part := range s.parts(v.Topic) {
			sub, is := part.Subscriptions[v.Subscription]
			if !is {
				continue
			}
			status := Warning
			if sub.NonContiguousDeletedMessagesRanges > limit {
				status = Problem
			}
			found = worse(found, judge(2*sub.NonContiguousDeletedMessagesRanges <= limit, status,
				"%s has %d ranges, of %d",
				local(name), sub.NonContiguousDeletedMessagesRanges, limit))
		}
		return found
	},
}
