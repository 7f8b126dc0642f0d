package doctor

import "errors"

var duplicates = Check{
	Name: "deduplication", About: "Dead letters", Needs: AdminAPI,
	Asks: "If there are dead letters to replay, does the broker drop duplicates?",
	Why: "otherwise a killed replay may publish letters twice, and a retry whose confirmation was lost may be sent " +
		"twice",
	Remedy: "`pulsar-admin namespaces set-deduplication {namespace} --enable`",
	look: func(v *visit) verdict {
		dead := v.dead()
		if dead == "" {
			return verdict{}
		}
		on, err := deduplication.ofTopic(v, dead)
		if err != nil {
			return unknown(err)
		}
		backlog := 0
		s, err := v.stats(dead)
		if err != nil && !errors.Is(err, errNoTopic) {
			return unknown(err)
		}
		for _, sub := range s.subscriptions() {
			backlog = max(backlog, sub.MsgBacklog)
		}
		return judge(on || backlog == 0, Warning, "deduplication is %s, %s of dead letters",
			map[bool]string{true: "on", false: "off"}[on], entries(backlog))
	},
}

// subscriptions returns a topic's subscriptions, or none if s is nil.
func (s *stats) subscriptions() map[string]subscription {
	if s == nil {
		return nil
	}
	return s.Subscriptions
}
